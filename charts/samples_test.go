package charts_test

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// sampleTag is the tag of images in the samples: the chart's appVersion.
const sampleTag = "v0.1.0"

// TestSampleImages checks that the samples use the images of the chart's appVersion, which `make
// samples` replaces.
func TestSampleImages(t *testing.T) {
	image := regexp.MustCompile(`image: (.*)`)
	for _, path := range samplePaths(t) {
		for _, match := range image.FindAllStringSubmatch(read(t, path), -1) {
			require.Regexp(t, `^ghcr\.io/akri-mesh/((sample|camera|opcua)-broker|camera-viewer):`+regexp.QuoteMeta(sampleTag)+"$", match[1], path)
		}
	}
}

// TestMakeSamples checks that `make samples` replaces the images of all samples, and nothing else.
func TestMakeSamples(t *testing.T) {
	directory := t.TempDir()
	bash(t, absolute(t, root), `tools/samples.sh registry.example.com:5000/akri v0.2.0 "$1"`, directory)
	values, err := filepath.Glob(filepath.Join(root, "deploy/samples/values/*.yaml"))
	require.NoError(t, err)
	for _, path := range append(samplePaths(t), values...) {
		path = strings.TrimPrefix(path, root+"/")
		name := strings.TrimPrefix(path, "deploy/samples/")
		written, err := os.ReadFile(filepath.Join(directory, name))
		require.NoError(t, err)
		require.NotContains(t, string(written), sampleTag, name)
		require.NotContains(t, string(written), "ghcr.io", name)
		original := strings.NewReplacer("registry.example.com:5000/akri", "ghcr.io/akri-mesh", "v0.2.0", sampleTag).Replace(string(written))
		require.Equal(t, read(t, path), original)
	}
}

// TestSamplesAreNotEdited checks that no page applies samples with a changed text: `make samples`
// writes them with other images, and `kubectl patch` changes objects.
func TestSamplesAreNotEdited(t *testing.T) {
	for path, text := range documents(t) {
		require.NotRegexp(t, `(?m)^[$ ]*sed .*deploy/samples.*kubectl`, text, path)
	}
}

// TestSampleValues checks that the values in deploy/samples/values create the Configurations of the
// samples.
func TestSampleValues(t *testing.T) {
	for name, handler := range map[string]string{"onvif-video": "onvif", "udev-usb-camera": "udev"} {
		rendered, err := render(t, append(set("services.enabled=false"), "--values", filepath.Join(root, "deploy/samples/values", name+".yaml"))...)
		require.NoError(t, err)
		created := decode[akriv0.Configuration](t, rendered, "Configuration")
		require.Len(t, created, 1)
		sample := decode[akriv0.Configuration](t, read(t, "deploy/samples/"+name+".yaml"), "Configuration")
		require.Len(t, sample, 1)
		require.Equal(t, sample[0].Name, created[0].Name)

		require.Equal(t, withoutDefaults(t, handler, sample[0]), withoutDefaults(t, handler, created[0]))
		for _, configuration := range append(sample, created...) {
			container := &configuration.Spec.BrokerSpec.BrokerPodSpec.Containers[0]
			container.Name = "broker"
			slices.SortFunc(container.Env, func(a, b corev1.EnvVar) int { return strings.Compare(a.Name, b.Name) })
		}
		sample[0].Spec.DiscoveryHandler.DiscoveryDetails, created[0].Spec.DiscoveryHandler.DiscoveryDetails = "", ""
		require.Equal(t, sample[0].Spec, created[0].Spec)
	}
}

// TestServersHaveNetworkPolicies checks that NetworkPolicies of each sample admit only Pods of
// its own namespace to the programs that serve frames. Values of the chart use those of the sample
// with their name, because the chart creates none for brokers.
func TestServersHaveNetworkPolicies(t *testing.T) {
	checked := map[string]int{}
	check := func(name, objects, policies string) {
		t.Helper()
		for _, server := range serversOf(t, objects) {
			requireOwnNamespace(t, name, server, decode[networkingv1.NetworkPolicy](t, policies, "NetworkPolicy"))
			checked[name]++
		}
	}
	for _, path := range samplePaths(t) {
		check(path, read(t, path), read(t, path))
	}
	values, err := filepath.Glob(filepath.Join(root, "deploy/samples/values/*.yaml"))
	require.NoError(t, err)
	for _, path := range values {
		rendered, err := render(t, append(set("services.enabled=false"), "--values", path)...)
		require.NoError(t, err)
		check("values/"+filepath.Base(path), rendered, read(t, "deploy/samples/"+filepath.Base(path)))
	}
	for name, servers := range map[string]int{
		"deploy/samples/onvif-video.yaml": 2, "deploy/samples/udev-usb-camera.yaml": 2, "deploy/samples/opcua.yaml": 1,
		"values/onvif-video.yaml": 1, "values/udev-usb-camera.yaml": 1,
	} {
		require.Equal(t, servers, checked[name], name)
	}
}

// TestSamplesNameNoSecrets checks that containers of samples get passwords from Secrets or files,
// and that nothing but a Secret contains one.
func TestSamplesNameNoSecrets(t *testing.T) {
	confidential := regexp.MustCompile(`PASSWORD|TOKEN|SECRET|USERNAME`)
	checked := 0
	check := func(name, objects string) {
		t.Helper()
		for _, pod := range podsOf(t, objects) {
			for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
				for _, variable := range container.Env {
					if !confidential.MatchString(variable.Name) || strings.HasSuffix(variable.Name, "_FILE") {
						continue
					}
					checked++
					require.Empty(t, variable.Value, "%s: %s", name, variable.Name)
					require.NotNil(t, variable.ValueFrom, "%s: %s", name, variable.Name)
					require.NotNil(t, variable.ValueFrom.SecretKeyRef, "%s: %s", name, variable.Name)
				}
			}
		}
	}
	for _, path := range samplePaths(t) {
		check(path, read(t, path))
		for _, secret := range decode[corev1.Secret](t, read(t, path), "Secret") {
			require.Equal(t, 1, strings.Count(read(t, path), secret.StringData["password"]), "%s: the password is only in the Secret", path)
		}
	}
	values, err := filepath.Glob(filepath.Join(root, "deploy/samples/values/*.yaml"))
	require.NoError(t, err)
	for _, path := range values {
		rendered, err := render(t, append(set("services.enabled=false"), "--values", path)...)
		require.NoError(t, err)
		check(filepath.Base(path), rendered)
	}
	require.Equal(t, 4, checked, "user name and password of onvif-video.yaml, and of its values")
}

// TestServersHaveLimits checks that the programs that serve frames and values have a limit of
// memory, which the tests of these programs use.
func TestServersHaveLimits(t *testing.T) {
	for _, path := range samplePaths(t) {
		for _, server := range serversOf(t, read(t, path)) {
			for _, container := range server.Spec.Containers {
				require.Positive(t, container.Resources.Limits.Memory().Value(), "%s: %s", path, container.Name)
				require.Positive(t, container.Resources.Requests.Memory().Value(), "%s: %s", path, container.Name)
			}
		}
	}
}

// serversOf returns the Pods of brokers and of workloads that serve frames of cameras or values.
func serversOf(t *testing.T, objects string) (servers []corev1.PodTemplateSpec) {
	t.Helper()
	server := regexp.MustCompile(`/(camera-broker|camera-viewer|opcua-broker):`)
	for _, pod := range podsOf(t, objects) {
		if slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return server.MatchString(c.Image) }) {
			servers = append(servers, pod)
		}
	}
	return servers
}

// podsOf returns the Pods of brokers and of workloads.
func podsOf(t *testing.T, objects string) (pods []corev1.PodTemplateSpec) {
	t.Helper()
	for _, workload := range decode[workload](t, objects, "DaemonSet", "Deployment", "StatefulSet", "Job") {
		pods = append(pods, workload.Spec.Template)
	}
	for _, configuration := range decode[akriv0.Configuration](t, objects, "Configuration") {
		if configuration.Spec.BrokerSpec == nil {
			continue
		}
		broker := corev1.PodTemplateSpec{}
		broker.Labels = map[string]string{"akri.sh/configuration": configuration.Name}
		if pod := configuration.Spec.BrokerSpec.BrokerPodSpec; pod != nil {
			broker.Spec = *pod
		}
		if job := configuration.Spec.BrokerSpec.BrokerJobSpec; job != nil {
			broker.Spec = job.Template.Spec
		}
		pods = append(pods, broker)
	}
	return pods
}

// requireOwnNamespace requires that the policies admit Pods of their own namespace to all ports of
// the Pod, and others only to its metrics.
func requireOwnNamespace(t *testing.T, name string, pod corev1.PodTemplateSpec, policies []networkingv1.NetworkPolicy) {
	t.Helper()
	open, metrics := map[int]bool{}, map[int]bool{}
	for _, port := range pod.Spec.Containers[0].Ports {
		if port.Name == "metrics" {
			metrics[int(port.ContainerPort)] = true
		} else {
			open[int(port.ContainerPort)] = true
		}
	}
	require.NotEmpty(t, open, name)
	selected := false
	for _, policy := range policies {
		if !selects(t, &policy.Spec.PodSelector, pod.Labels) {
			continue
		}
		selected = true
		require.Equal(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, policy.Spec.PolicyTypes, name)
		for _, rule := range policy.Spec.Ingress {
			own := reflect.DeepEqual(rule.From, []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}})
			if len(rule.Ports) == 0 { // to all
				require.True(t, own, "%s: %s admits other namespaces to all ports", name, policy.Name)
				clear(open)
			}
			for _, port := range rule.Ports {
				require.NotNil(t, port.Port, name)
				require.Nil(t, port.EndPort, name)
				require.True(t, own || metrics[port.Port.IntValue()], "%s: %s of other namespaces is admitted to port %v", name, policy.Name, port.Port)
				delete(open, port.Port.IntValue())
			}
		}
	}
	require.True(t, selected, "%s: no NetworkPolicy selects %v", name, pod.Labels)
	require.Empty(t, open, "%s: no NetworkPolicy admits to these ports of %v", name, pod.Labels)
}

// withoutDefaults returns the discoveryDetails that are not the defaults of the chart.
func withoutDefaults(t *testing.T, handler string, configuration akriv0.Configuration) map[string]any {
	t.Helper()
	var values map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "charts/akri/values.yaml")), &values))
	defaults, found, err := unstructured.NestedMap(values, handler, "configuration", "discoveryDetails")
	require.NoError(t, err)
	require.True(t, found)
	var details map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(configuration.Spec.DiscoveryHandler.DiscoveryDetails), &details))
	maps.DeleteFunc(details, func(key string, value any) bool { return reflect.DeepEqual(value, defaults[key]) })
	return details
}

// TestReadmeRequestsFreeDevices checks that the README applies a sample with the devices that it
// requests, and that neither brokers nor Deployments hold all of their slots. On a cluster with
// enough nodes, brokers hold all slots.
func TestReadmeRequestsFreeDevices(t *testing.T) {
	readme := read(t, "README.md")
	capacities, held := map[string]int{}, 0
	for _, match := range regexp.MustCompile(`kubectl apply -f (deploy/samples/\S+)`).FindAllStringSubmatch(readme, -1) {
		for document := range strings.SplitSeq(read(t, match[1]), "\n---\n") {
			addCapacities(t, document, capacities)
			held += requests(t, document)
		}
	}
	requested := regexp.MustCompile(`(akri\.sh/[a-z0-9-]+): "1"`).FindAllStringSubmatch(readme, -1)
	require.NotEmpty(t, requested)
	for _, request := range requested {
		require.Positive(t, capacities[request[1]], "no sample in the README leaves slots of %s free", request[1])
		require.Greater(t, capacities[request[1]], held, "the samples in the README hold all slots of %s", request[1])
	}
}

// addCapacities adds the resources of a Configuration without brokers for shared fake devices.
func addCapacities(t *testing.T, document string, capacities map[string]int) {
	t.Helper()
	var configuration akriv0.Configuration
	require.NoError(t, yaml.Unmarshal([]byte(document), &configuration))
	if configuration.Kind != "Configuration" || configuration.Spec.BrokerSpec != nil {
		return
	}
	var details struct{ Descriptions []string }
	require.NoError(t, yaml.Unmarshal([]byte(configuration.Spec.DiscoveryHandler.DiscoveryDetails), &details))
	capacity := int(configuration.Spec.CapacityOrDefault())
	for _, device := range details.Descriptions {
		capacities["akri.sh/"+configuration.Name+"-"+akriv0.Digest(device, "", true)] = capacity
		capacities["akri.sh/"+configuration.Name] += capacity
	}
}

// requests returns the number of devices that the Pods of a Deployment request.
func requests(t *testing.T, document string) int {
	t.Helper()
	var deployment appsv1.Deployment
	require.NoError(t, yaml.Unmarshal([]byte(document), &deployment))
	if deployment.Kind != "Deployment" {
		return 0
	}
	count := 0
	for _, container := range deployment.Spec.Template.Spec.Containers {
		for name, quantity := range container.Resources.Limits {
			if strings.HasPrefix(string(name), "akri.sh/") {
				count += int(quantity.Value()) * int(*deployment.Spec.Replicas)
			}
		}
	}
	return count
}

// samplePaths returns the samples, relative to the repository.
func samplePaths(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "deploy/samples/*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for i, path := range paths {
		paths[i], err = filepath.Rel(root, path)
		require.NoError(t, err)
	}
	return paths
}
