package controller

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	"akri.sh/services/dra-controller/internal/desired"
)

// Cache holds the objects that decisions depend on, without the fields that are not needed.
type Cache struct {
	// General are the informers of objects that each API server has. DRA are the others, of Dynamic
	// Resource Allocation.
	General, DRA kube.Informers

	// ClassClient and SliceClient write what Classes and Slices read. RoleClient reads the owner of
	// Root.
	ClassClient *classClient
	SliceClient *sliceClient
	RoleClient  *kube.Client[*rbacv1.ClusterRole, *rbacv1.ClusterRoleList]

	Instances      *kube.Informer[*akriv0.Instance]
	Configurations *kube.Informer[*akriv0.Configuration]
	Nodes          *kube.Informer[*corev1.Node]
	// Classes and Slices are those of this service, Root is the DeviceClass that owns them.
	Classes *kube.Informer[*resourcev1.DeviceClass]
	Slices  *kube.Informer[*resourcev1.ResourceSlice]
	Root    *kube.Informer[*resourcev1.DeviceClass]
	// Claims have only the devices of Akri that are allocated to them and, if they are of extended
	// resources, the classes of their requests.
	Claims *kube.Informer[*resourcev1.ResourceClaim]
}

// Indexes of the cache.
const (
	byName          = "name"
	byNode          = "node"
	byConfiguration = "configuration"
	byPool          = "pool"
	byDevice        = "device"
)

// NewCache returns a cache that is not running. It sends no request.
func NewCache(config *rest.Config) (Cache, error) {
	instances, instancesErr := kube.Instances(config)
	configurations, configurationsErr := kube.Configurations(config)
	nodes, nodesErr := kube.Nodes(config)
	version := resourcev1.SchemeGroupVersion
	classes, classesErr := kube.NewClient[resourcev1.DeviceClass, resourcev1.DeviceClassList](
		config, version.WithResource("deviceclasses"))
	slices, slicesErr := kube.NewClient[resourcev1.ResourceSlice, resourcev1.ResourceSliceList](
		config, version.WithResource("resourceslices"))
	claims, claimsErr := kube.NewClient[resourcev1.ResourceClaim, resourcev1.ResourceClaimList](
		config, version.WithResource("resourceclaims"))
	roles, rolesErr := kube.NewClient[rbacv1.ClusterRole, rbacv1.ClusterRoleList](
		config, rbacv1.SchemeGroupVersion.WithResource("clusterroles"))
	if err := errors.Join(instancesErr, configurationsErr, nodesErr, classesErr, slicesErr, claimsErr, rolesErr); err != nil {
		return Cache{}, err
	}

	names := func(object any) ([]string, error) { return []string{object.(metav1.Object).GetName()}, nil }
	instanceIndexers := cache.Indexers{
		byName: names,
		byNode: func(object any) ([]string, error) { return object.(*akriv0.Instance).Spec.Nodes, nil },
		byConfiguration: func(object any) ([]string, error) {
			instance := object.(*akriv0.Instance)
			return []string{instance.Namespace + "/" + instance.Spec.ConfigurationName}, nil
		},
	}
	sliceIndexers := cache.Indexers{
		byPool: func(object any) ([]string, error) {
			return []string{object.(*resourcev1.ResourceSlice).Spec.Pool.Name}, nil
		},
		byDevice: func(object any) ([]string, error) { return devicesOf(object.(*resourcev1.ResourceSlice)), nil },
	}
	managed := metav1.ListOptions{LabelSelector: desired.LabelManagedBy + "=" + desired.ManagedBy}
	ofDriver := metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorDriver, akriv0.Driver).String(),
	}
	c := Cache{
		ClassClient: classes, SliceClient: slices, RoleClient: roles,
		Instances:      kube.NewInformer(instances, instanceIndexers, nil),
		Configurations: kube.NewInformer(configurations, cache.Indexers{byName: names}, trimConfiguration),
		Nodes:          kube.NewInformer(nodes, nil, trimNode),
		Classes:        kube.NewSelectedInformer(classes, metav1.NamespaceAll, managed, nil, nil),
		Slices:         kube.NewSelectedInformer(slices, metav1.NamespaceAll, ofDriver, sliceIndexers, nil),
		Root:           kube.NewNamedInformer(classes, metav1.NamespaceNone, akriv0.Driver),
		Claims:         kube.NewInformer(claims, cache.Indexers{byPool: poolsOfClaim}, trimClaim),
	}
	c.General = kube.Informers{c.Instances, c.Configurations, c.Nodes}
	c.DRA = kube.Informers{c.Classes, c.Slices, c.Root, c.Claims}
	return c, nil
}

func trimConfiguration(configuration *akriv0.Configuration) {
	configuration.Status = akriv0.ConfigurationStatus{}
	configuration.Spec = akriv0.ConfigurationSpec{DiscoveryHandler: akriv0.DiscoveryHandler{Name: configuration.Spec.DiscoveryHandler.Name}}
}

func trimNode(node *corev1.Node) {
	kept := map[string]string{}
	for _, name := range []string{corev1.LabelHostname, akriv0.ResourcesLabel} {
		if value, exists := node.Labels[name]; exists {
			kept[name] = value
		}
	}
	node.Labels, node.Annotations = kept, nil
	info := node.Status.NodeInfo
	node.Spec, node.Status = corev1.NodeSpec{}, corev1.NodeStatus{}
	node.Status.NodeInfo = corev1.NodeSystemInfo{KubeletVersion: info.KubeletVersion, ContainerRuntimeVersion: info.ContainerRuntimeVersion}
}

func trimClaim(claim *resourcev1.ResourceClaim) {
	var results []resourcev1.DeviceRequestAllocationResult
	for _, result := range allocated(claim) {
		if result.Driver == akriv0.Driver {
			results = append(results, resourcev1.DeviceRequestAllocationResult{Driver: result.Driver, Pool: result.Pool, Device: result.Device})
		}
	}
	var requests []resourcev1.DeviceRequest
	if _, ofExtendedResources := claim.Annotations[resourcev1.ExtendedResourceClaimAnnotation]; ofExtendedResources {
		for _, request := range claim.Spec.Devices.Requests {
			if request.Exactly != nil {
				requests = append(requests, resourcev1.DeviceRequest{
					Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: request.Exactly.DeviceClassName},
				})
			}
		}
	}
	claim.Labels, claim.Annotations, claim.OwnerReferences = nil, nil, nil
	claim.Spec = resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: requests}}
	claim.Status = resourcev1.ResourceClaimStatus{}
	if len(results) > 0 {
		claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: results}}
	}
}

func allocated(claim *resourcev1.ResourceClaim) []resourcev1.DeviceRequestAllocationResult {
	if claim.Status.Allocation == nil {
		return nil
	}
	return claim.Status.Allocation.Devices.Results
}

func poolsOfClaim(object any) (pools []string, _ error) {
	for _, result := range allocated(object.(*resourcev1.ResourceClaim)) {
		pools = append(pools, result.Pool)
	}
	return pools, nil
}
