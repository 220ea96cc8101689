package instancewriter_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/kubetest"
	configurationv1 "akri.sh/proto/akri/configuration/v1"
	instancewriter "akri.sh/services/instance-writer"
)

// configurationWatch is the WatchConfigurations stream of a node.
type configurationWatch struct {
	*testing.T
	grpc.BidiStreamingClient[configurationv1.WatchConfigurationsRequest, configurationv1.WatchConfigurationsResponse]
	received chan *configurationv1.WatchConfigurationsResponse
	ended    chan error
}

func openWatch(t *testing.T, r *replica, request *configurationv1.WatchConfigurationsRequest) *configurationWatch {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := configurationv1.NewConfigurationServiceClient(r.conn).WatchConfigurations(ctx, grpc.WaitForReady(true))
	require.NoError(t, err)
	w := &configurationWatch{t, stream, make(chan *configurationv1.WatchConfigurationsResponse, 1000), make(chan error, 1)}
	t.Cleanup(cancel)
	require.NoError(t, stream.Send(request))
	go func() {
		for {
			response, err := stream.Recv()
			if err != nil {
				w.ended <- err
				return
			}
			w.received <- response
		}
	}()
	return w
}

// next returns the next response.
func (w *configurationWatch) next() *configurationv1.WatchConfigurationsResponse {
	w.Helper()
	select {
	case response := <-w.received:
		return response
	case <-time.After(timeout):
		require.FailNow(w, "no response")
		return nil
	}
}

// snapshot returns the parts of the snapshot, and its Configurations by key.
func (w *configurationWatch) snapshot() (parts []*configurationv1.WatchConfigurationsResponse, all map[string]*configurationv1.Configuration) {
	w.Helper()
	for all = map[string]*configurationv1.Configuration{}; ; {
		part := w.next()
		parts = append(parts, part)
		require.NotNil(w, part.GetSnapshot())
		for _, configuration := range part.GetSnapshot().GetConfigurations() {
			all[configuration.GetNamespace()+"/"+configuration.GetName()] = configuration
		}
		if part.GetSnapshot().GetLast() {
			return parts, all
		}
	}
}

// updated returns the next response, which is an update of the Configuration.
func (w *configurationWatch) updated(key string) *configurationv1.Configuration {
	w.Helper()
	updated := w.next().GetUpdated()
	require.Equal(w, key, updated.GetNamespace()+"/"+updated.GetName())
	return updated
}

func values(configuration *configurationv1.Configuration) map[string]string {
	all := map[string]string{}
	for name, value := range configuration.GetRequest().GetProperties() {
		all[name] = string(value.GetValue())
	}
	return all
}

// discover sets the handler and the password of the Configuration of the fixture and returns its
// key.
func (f *fixture) discover(handler, secret string) string {
	f.Helper()
	f.edit(func(spec *akriv0.ConfigurationSpec) {
		spec.BrokerProperties = map[string]string{"MINE": "1"}
		spec.DiscoveryHandler = akriv0.DiscoveryHandler{Name: handler, DiscoveryDetails: "details", DiscoveryProperties: []akriv0.DiscoveryProperty{
			{Name: "password", ValueFrom: &akriv0.PropertySource{SecretKeyRef: &akriv0.KeyRef{Name: secret, Key: "k"}}},
		}}
	})
	return namespace + "/" + f.configuration.Name
}

func (f *fixture) edit(change func(*akriv0.ConfigurationSpec)) {
	f.Helper()
	kubetest.Edit(f, f.configurations.In(namespace), f.configuration.Name, func(c *akriv0.Configuration) { change(&c.Spec) })
}

// secret creates or updates a Secret with the key k.
func (f *fixture) secret(name, value string) {
	f.Helper()
	client, err := kube.NewClient[corev1.Secret, corev1.SecretList](api.Config(), corev1.SchemeGroupVersion.WithResource("secrets"))
	require.NoError(f, err)
	secrets, desired := client.In(namespace), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"k": []byte(value)}}
	_, err = secrets.Create(context.Background(), desired, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = secrets.Update(context.Background(), desired, metav1.UpdateOptions{})
	} else {
		f.Cleanup(func() { _ = secrets.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	}
	require.NoError(f, err)
}

func TestWatchConfigurations(t *testing.T) {
	kubetest.NoLeaks(t)
	f := newFixture(t, 3, 0)
	f.secret("camera", "first")
	key := f.discover("onvif", "camera")
	core, logged := observer.New(zap.DebugLevel)
	r := startWith(t, instancewriter.Config{Flags: kube.Flags{REST: api.Config()}, NodeGrace: grace}, zap.New(core))
	with := openWatch(t, r, &configurationv1.WatchConfigurationsRequest{Node: "with", Handlers: []string{"onvif"}})
	without := openWatch(t, r, &configurationv1.WatchConfigurationsRequest{Node: "without", Handlers: []string{"udev"}})

	_, all := with.snapshot()
	got := all[key]
	require.Equal(t, string(f.configuration.UID), got.GetUid())
	require.EqualValues(t, 2, got.GetGeneration())
	require.True(t, got.GetCreated().AsTime().Equal(f.configuration.CreationTimestamp.Time))
	require.Equal(t, "onvif", got.GetHandler())
	require.Equal(t, "details", got.GetRequest().GetDetails())
	require.Equal(t, map[string]string{"MINE": "1"}, got.GetRequest().GetBrokerProperties())
	require.Equal(t, map[string]string{"password": "first"}, values(got))
	_, all = without.snapshot()
	require.Equal(t, "onvif", all[key].GetHandler())
	require.Nil(t, all[key].GetRequest(), "the node does not have the handler")

	// A value changes. Only the node with the handler gets a message: the next message of the other
	// node is about the handler that it adds.
	f.secret("camera", "second")
	require.Equal(t, map[string]string{"password": "second"}, values(with.updated(key)))
	require.NoError(t, without.Send(&configurationv1.WatchConfigurationsRequest{Node: "without", Handlers: []string{"udev", "onvif"}}))
	require.Equal(t, map[string]string{"password": "second"}, values(without.updated(key)))
	require.NoError(t, without.Send(&configurationv1.WatchConfigurationsRequest{Node: "without"}))
	require.Nil(t, without.updated(key).GetRequest())

	// A change of the status is not sent.
	require.Empty(t, openReports(t, r).send(f.newReport("with")))
	f.eventually("status", func() bool { return len(f.status().Conditions) > 0 })
	f.edit(func(spec *akriv0.ConfigurationSpec) { spec.DiscoveryHandler.DiscoveryDetails = "other" })
	require.Equal(t, "other", with.updated(key).GetRequest().GetDetails())
	require.Nil(t, without.updated(key).GetRequest())

	require.NoError(t, f.configurations.In(namespace).Delete(t.Context(), f.configuration.Name, metav1.DeleteOptions{}))
	require.Equal(t, f.configuration.Name, with.next().GetRemoved().GetName())
	for _, entry := range logged.All() {
		text := fmt.Sprint(entry.Message, entry.ContextMap())
		require.NotContains(t, text, "first")
		require.NotContains(t, text, "second")
	}
	r.kill()
	require.Equal(t, codes.Unavailable, status.Code(<-with.ended))
}

// A Secret that does not exist is a problem until it is created.
func TestWatchConfigurationsWithoutSecret(t *testing.T) {
	f := newFixture(t, 1, 0)
	key := f.discover("onvif", "later")
	w := openWatch(t, start(t, grace), &configurationv1.WatchConfigurationsRequest{Node: "n", Handlers: []string{"onvif"}})
	_, all := w.snapshot()
	problem := all[key].GetRequest().GetProblems()[0]
	require.Equal(t, akriv0.ReasonPropertyNotFound, problem.GetReason())
	require.Equal(t, `discoveryProperty "password": Secret default/later not found`, problem.GetMessage())
	require.Empty(t, values(all[key]))
	f.secret("later", "value")
	updated := w.updated(key)
	require.Equal(t, map[string]string{"password": "value"}, values(updated))
	require.Empty(t, updated.GetRequest().GetProblems())
}

// A large snapshot has several parts, and no part is much larger than its limit.
func TestLargeSnapshot(t *testing.T) {
	r := start(t, grace)
	var fixtures []*fixture
	for range 5 {
		f := newFixture(t, 1, 0)
		f.edit(func(spec *akriv0.ConfigurationSpec) {
			spec.DiscoveryHandler = akriv0.DiscoveryHandler{Name: "large", DiscoveryDetails: strings.Repeat("x", 20<<10)}
		})
		fixtures = append(fixtures, f)
	}
	for _, f := range fixtures { // until the cache has the last edit
		f.eventually("the edit", func() bool {
			_, all := openWatch(t, r, &configurationv1.WatchConfigurationsRequest{Node: "n", Handlers: []string{"large"}}).snapshot()
			return len(all[namespace+"/"+f.configuration.Name].GetRequest().GetDetails()) == 20<<10
		})
	}
	parts, all := openWatch(t, r, &configurationv1.WatchConfigurationsRequest{Node: "n", Handlers: []string{"large"}}).snapshot()
	require.Len(t, all, len(fixtures))
	require.Len(t, parts, 2)
	for _, part := range parts {
		require.LessOrEqual(t, proto.Size(part), 64<<10+100)
	}
}

// A replica that is behind the one that a node has seen waits, but not without a limit.
func TestWatchConfigurationsAtRevision(t *testing.T) {
	f := newFixture(t, 1, 0)
	r := start(t, grace)
	began := time.Now()
	w := openWatch(t, r, &configurationv1.WatchConfigurationsRequest{Node: "n", Revision: 1 << 40})
	parts, _ := w.snapshot()
	require.GreaterOrEqual(t, time.Since(began), 5*time.Second)
	revision := parts[0].GetRevision()
	require.NotZero(t, revision)

	w = openWatch(t, r, &configurationv1.WatchConfigurationsRequest{Node: "n", Revision: revision + 1})
	f.edit(func(spec *akriv0.ConfigurationSpec) { spec.DiscoveryHandler.Name = "edited" })
	parts, all := w.snapshot()
	require.Greater(t, parts[0].GetRevision(), revision)
	require.Equal(t, "edited", all[namespace+"/"+f.configuration.Name].GetHandler())
}

func TestInvalidWatchOfConfigurations(t *testing.T) {
	r := start(t, grace)
	ended := func(w *configurationWatch) string {
		err := <-w.ended
		require.Equal(t, codes.InvalidArgument, status.Code(err))
		return err.Error()
	}
	require.Contains(t, ended(openWatch(t, r, &configurationv1.WatchConfigurationsRequest{})), "node must not be empty")
	require.Contains(t, ended(openWatch(t, r, &configurationv1.WatchConfigurationsRequest{Node: "n", Handlers: make([]string, 2001)})),
		"at most 2000 handlers, but this one has 2001")
	w := openWatch(t, r, &configurationv1.WatchConfigurationsRequest{Node: "n"})
	w.snapshot()
	require.NoError(t, w.Send(&configurationv1.WatchConfigurationsRequest{Node: "other"}))
	require.Contains(t, ended(w), `node must be "n" on this stream, but is "other"`)
}

// account is the service account of the chart.
const account = "system:serviceaccount:akri:akri-instance-writer"

// The problem has the commands that grant the right. The value is sent after they were executed.
func TestForbiddenSecret(t *testing.T) {
	f := newFixture(t, 1, 0)
	f.secret("hidden", "value")
	key := f.discover("onvif", "hidden")
	config := api.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: account, Groups: []string{"system:authenticated"}}
	grant(t, "clusterroles", "", &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "writer"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"akri.sh", ""}, Resources: []string{"configurations", "instances", "nodes"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{akriv0.NamesConfigMap}, Verbs: []string{"list", "watch"}},
		},
	})
	grant(t, "clusterrolebindings", "", &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "writer"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "writer"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: account, APIGroup: rbacv1.GroupName}},
	})
	r := startWith(t, instancewriter.Config{Flags: kube.Flags{REST: config}, NodeGrace: grace}, zap.NewNop())
	w := openWatch(t, r, &configurationv1.WatchConfigurationsRequest{Node: "n", Handlers: []string{"onvif"}})
	_, all := w.snapshot()
	problem := all[key].GetRequest().GetProblems()[0]
	require.Equal(t, akriv0.ReasonPropertyForbidden, problem.GetReason())
	require.Equal(t, `discoveryProperty "password": instance-writer may not read Secret default/hidden; grant the right with: `+
		"kubectl create role akri-secret-hidden -n default --verb=get,watch --resource=secrets --resource-name=hidden && "+
		"kubectl create rolebinding akri-secret-hidden -n default --role=akri-secret-hidden --serviceaccount=akri:akri-instance-writer",
		problem.GetMessage())

	grant(t, "roles", namespace, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "akri-secret-hidden"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"hidden"}, Verbs: []string{"get", "watch"}}},
	})
	grant(t, "rolebindings", namespace, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "akri-secret-hidden"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "akri-secret-hidden"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "akri", Name: "akri-instance-writer"}},
	})
	require.Equal(t, map[string]string{"password": "value"}, values(w.updated(key)))
	f.secret("hidden", "rotated") // the watch is allowed, too
	require.Equal(t, map[string]string{"password": "rotated"}, values(w.updated(key)))
}

// grant creates an object of RBAC.
func grant[T any, PT interface {
	*T
	kube.Object
}](t *testing.T, resource, namespace string, object PT) {
	t.Helper()
	client, err := kube.NewClient[T, metav1.List, PT](api.Config(), rbacv1.SchemeGroupVersion.WithResource(resource))
	require.NoError(t, err)
	_, err = client.In(namespace).Create(t.Context(), object, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = client.In(namespace).Delete(context.Background(), object.GetName(), metav1.DeleteOptions{})
	})
}
