package instancewriter_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

const draPlugin = "akri-dra-kubelet-plugin"

// claimsIn are the ResourceClaims of a namespace.
type claimsIn struct {
	client    *kube.Client[*resourcev1.ResourceClaim, *resourcev1.ResourceClaimList]
	namespace string
}

// newClaims returns the claims of a new namespace, which allows admin access. The namespace stays.
func newClaims(t *testing.T, name string) claimsIn {
	t.Helper()
	created, err := kubernetes.NewForConfigOrDie(api.Config()).CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: name, Labels: map[string]string{"resource.kubernetes.io/admin-access": "true"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	claims, err := kube.NewClient[resourcev1.ResourceClaim, resourcev1.ResourceClaimList](
		api.Config(), resourcev1.SchemeGroupVersion.WithResource("resourceclaims"))
	require.NoError(t, err)
	return claimsIn{claims, created.Name}
}

const podClaim = "camera"

// create creates a claim that is allocated to the results, or not allocated without any, and
// returns its uid. Pods have the name podClaim for it.
func (c claimsIn) create(t *testing.T, name string, results ...resourcev1.DeviceRequestAllocationResult) string {
	t.Helper()
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Name: name, Annotations: map[string]string{resourcev1.PodResourceClaimAnnotation: podClaim},
	}}
	for i := range max(1, len(results)) {
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, resourcev1.DeviceRequest{
			Name: fmt.Sprint("r", i), Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: akriv0.Driver},
		})
	}
	created, err := c.client.In(c.namespace).Create(t.Context(), claim, metav1.CreateOptions{})
	require.NoError(t, err)
	if len(results) > 0 {
		created.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: results}}
		_, err = c.client.In(c.namespace).UpdateStatus(t.Context(), created, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	return string(created.UID)
}

func (c claimsIn) delete(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, c.client.In(c.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
}

// published is a device in ResourceSlices.
type published struct{ pool, device string }

// reportEach makes the first two nodes report the device shared, and each node one of its own. It
// returns which nodes see a device, by each of its names.
func (f *fixture) reportEach(r *replica) map[published][]string {
	f.Helper()
	seeing := map[published][]string{}
	for i, node := range f.nodes {
		devices := []*discoveryv1.Device{f.device(node, "own", false)}
		if i < 2 {
			devices = append(devices, f.device(node, "shared", true))
		}
		require.Empty(f, openReports(f, r).send(f.newReport(node, devices...)))
		for _, device := range devices {
			name := device.GetInstance()
			for _, names := range []published{
				{akriv0.InstancePool(namespace, name), akriv0.SlotName(name, 0)}, {akriv0.InstancePool(namespace, name), name},
				{akriv0.DevicePool(namespace, "c", "", name), name}, {akriv0.DevicePool(namespace, "c", "any", name), name},
			} {
				seeing[names] = append(seeing[names], node)
			}
		}
	}
	return seeing
}

// A node gets what was allocated to a claim only if it sees all devices of the claim. Other answers
// are those for a claim that does not exist: for claims of other nodes and drivers, claims that are
// not allocated, deleted or created again, and for guessed uids.
func TestNodesGetTheirClaimsOnly(t *testing.T) {
	f := newFixture(t, 2, 3)
	r, claims := start(t, grace), newClaims(t, "claims-")
	seeing := f.reportEach(r)
	random := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	names := slices.SortedFunc(maps.Keys(seeing), func(a, b published) int { return cmp.Compare(a.pool+" "+a.device, b.pool+" "+b.device) })
	results := func() (results []resourcev1.DeviceRequestAllocationResult) {
		strange := []string{"absent/" + f.instanceName("shared"), namespace + "/absent", f.instanceName("shared"), names[0].pool + "/x"}
		for i := range random.IntN(4) {
			device := names[random.IntN(len(names))]
			result := resourcev1.DeviceRequestAllocationResult{
				Request: fmt.Sprint("r", i), Driver: akriv0.Driver, Pool: device.pool, Device: device.device,
			}
			switch random.IntN(8) {
			case 0:
				result.Pool = strange[random.IntN(len(strange))]
			case 1, 2:
				result.Driver = "gpu.example.com"
			case 3:
				result.AdminAccess = new(true)
			case 4:
				result.ShareID = new(types.UID("3d1b2c7a-6f0e-4b58-9d59-5a2f1d3c4e5f"))
			}
			results = append(results, result)
		}
		return results
	}

	type object struct {
		name, uid string
		results   []resourcev1.DeviceRequestAllocationResult
	}
	var all []object // the last one of a name exists, unless it is deleted
	existing := map[string]string{}
	for i := range 30 {
		name := fmt.Sprintf("%s-claim%d", f.configuration.Name, i)
		for range 1 + random.IntN(2) {
			if existing[name] != "" {
				claims.delete(t, name)
			}
			created := object{name: name, results: results()}
			created.uid = claims.create(t, name, created.results...)
			all, existing[name] = append(all, created), created.uid
		}
		if random.IntN(5) == 0 {
			claims.delete(t, name)
			existing[name] = ""
		}
	}
	answered := 0
	for _, node := range f.nodes {
		for _, asked := range all {
			visible := existing[asked.name] == asked.uid
			var expected []*instancev1.AllocatedDevice
			for _, result := range asked.results {
				if result.Driver != akriv0.Driver {
					continue
				}
				visible = visible && slices.Contains(seeing[published{result.Pool, result.Device}], node)
				expected = append(expected, &instancev1.AllocatedDevice{
					Request: result.Request, Pool: result.Pool, Device: result.Device, AdminAccess: result.AdminAccess != nil, ShareId: (*string)(result.ShareID),
				})
			}
			request := &instancev1.GetResourceClaimRequest{Node: node, Namespace: claims.namespace, Name: asked.name, Uid: asked.uid}
			if !visible || len(expected) == 0 {
				requireUnknown(t, r.client, request)
				continue
			}
			answered++
			response, err := r.client.GetResourceClaim(t.Context(), request)
			require.NoError(t, err)
			require.True(t, proto.Equal(&instancev1.GetResourceClaimResponse{Devices: expected, PodClaimName: podClaim}, response), response)
			for _, uid := range []string{"", all[random.IntN(len(all))].uid} {
				if request.Uid = uid; uid != asked.uid {
					requireUnknown(t, r.client, request)
				}
			}
		}
	}
	require.NotZero(t, answered)
	t.Logf("%d claims, %d answers", len(all), answered)
}

// requireUnknown checks that the answer is that for a claim that does not exist.
func requireUnknown(t *testing.T, client instancev1.InstanceServiceClient, request *instancev1.GetResourceClaimRequest) {
	t.Helper()
	_, err := client.GetResourceClaim(t.Context(), request)
	got := status.Convert(err).Proto()
	absent := proto.CloneOf(request)
	absent.Name = "absent"
	_, err = client.GetResourceClaim(t.Context(), absent)
	require.Equal(t, codes.NotFound, status.Code(err), err)
	unknown := status.Convert(err).Proto()
	unknown.Message = strings.ReplaceAll(unknown.GetMessage(), "absent", request.GetName())
	require.True(t, proto.Equal(unknown, got), "%v is not %v", got, unknown)
}

// Only the service that prepares claims may ask, for its own node, and only for names of claims.
func TestCallersOfGetResourceClaim(t *testing.T) {
	f := newFixture(t, 2, 2)
	f.reportEach(start(t, grace))
	r, node, other := startSecured(t, api.Config().Host, slow), f.nodes[0], f.nodes[1]
	claims, device := newClaims(t, "claims-"), f.device(other, "own", false).GetInstance()
	uid := claims.create(t, f.configuration.Name, resourcev1.DeviceRequestAllocationResult{
		Request: "r0", Driver: akriv0.Driver, Pool: akriv0.DevicePool(namespace, "c", "", device), Device: device,
	})
	request := &instancev1.GetResourceClaimRequest{Node: other, Namespace: claims.namespace, Name: f.configuration.Name, Uid: uid}
	for _, account := range []string{draPlugin, agent} {
		own := r.client(token(t, namespace, account, other, audience))
		response, err := own.GetResourceClaim(t.Context(), request)
		require.NoError(t, err)
		require.Equal(t, device, response.GetDevices()[0].GetDevice())

		_, err = r.client(token(t, namespace, account, node, audience)).GetResourceClaim(t.Context(), request)
		require.ErrorContains(t, err, "may not call for node")
		for _, name := range []string{"", "..", "a/status", "a?watch=true", strings.Repeat("a", 1<<20)} {
			_, err := own.GetResourceClaim(t.Context(), &instancev1.GetResourceClaimRequest{Node: other, Namespace: namespace, Name: name, Uid: uid})
			require.Equal(t, codes.InvalidArgument, status.Code(err), err)
			_, err = own.GetResourceClaim(t.Context(), &instancev1.GetResourceClaimRequest{Node: other, Namespace: name, Name: "a", Uid: uid})
			require.Equal(t, codes.InvalidArgument, status.Code(err), err)
		}
	}
	for _, account := range []string{operator, host} {
		_, err := r.client(token(t, namespace, account, other, audience)).GetResourceClaim(t.Context(), request)
		require.Equal(t, codes.PermissionDenied, status.Code(err), err)
	}
}

// A node that asks without end waits, and others do not.
func TestReadsOfClaimsAreLimited(t *testing.T) {
	const calls, burst, ratePerSecond = 1600, 1000, 10
	r, started, answered := start(t, grace), time.Now(), 0
	ask := func(node string, deadline time.Duration) codes.Code {
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		defer cancel()
		_, err := r.client.GetResourceClaim(ctx, &instancev1.GetResourceClaimRequest{Node: node, Namespace: namespace, Name: "absent", Uid: "uid"})
		return status.Code(err)
	}
	require.Equal(t, codes.NotFound, ask("hostile", timeout))
	for range calls {
		if ask("hostile", time.Second/ratePerSecond/2) == codes.NotFound {
			answered++
		}
	}
	require.LessOrEqual(t, answered, burst+int(ratePerSecond*time.Since(started).Seconds()))
	require.Equal(t, codes.NotFound, ask("other", timeout))
	t.Logf("%d of %d calls were answered", answered, calls)
}
