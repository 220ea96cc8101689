package e2e_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"image/jpeg"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/proto/camera"

	"akri.sh/integration/devices/onvif"
	"akri.sh/integration/devices/rtsp"
	"akri.sh/integration/mesh"
)

// watched is the time for which the browser shows the cameras: AKRI_CAMERAS, or twice the time for
// which their pictures may rest.
func watched(t *testing.T) time.Duration {
	t.Helper()
	duration, err := time.ParseDuration(cmp.Or(os.Getenv("AKRI_CAMERAS"), "10s"))
	require.NoError(t, err, "AKRI_CAMERAS")
	return duration
}

// cameraSecret is locked by scenarios that create the Secret camera-broker.
var cameraSecret sync.Mutex

// videoOfCameras runs the tutorial with two cameras (three with AKRI_CAMERAS) that send H.264 and
// require a password. They name the address of another host for their stream, as behind a network
// address translation. In a browser, the page of the viewer shows the moving pictures of all
// cameras, and the Service of the Configuration has frames of all. A namespace that may not use the
// cameras gets none. The Services of the Configuration that the chart creates from values have
// frames, too.
func videoOfCameras(t *testing.T) {
	cameraSecret.Lock()
	t.Cleanup(cameraSecret.Unlock)
	fleet, err := onvif.StartOn(t.Context(), akri.Cluster, 2)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, fleet.Stop()) })
	cameras := map[string]*rtsp.Camera{} // by name
	ports := map[int]uint16{4: 80, 5: 81}
	if os.Getenv("AKRI_CAMERAS") != "" {
		ports[6] = 82
	}
	for number, port := range ports {
		camera := onvif.Make(number, netip.AddrPortFrom(fleet.Address, port))
		video, err := rtsp.Start(t.Context(), []string{"nsenter", "--net=" + fleet.Namespace()},
			"--address", fleet.Address.String(), "--port", strconv.Itoa(8550+number), "--username", "admin", "--password", "change-me")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, video.Stop()) })
		camera.Auth, camera.Username, camera.Password = onvif.WSSecurity, "admin", "change-me"
		camera.Stream = video.URL("192.0.2.1")
		require.NoError(t, fleet.Plug(camera))
		cameras[camera.UUID] = video
	}
	// The cameras of earlier tests may still have their grace period.
	const identity = "      identity: uuid"
	only := "      uuids: {action: Include, items: [" + strings.Join(slices.Sorted(maps.Keys(cameras)), ", ") + "]}\n" + identity
	run := tutorialOf(t, "tutorials/camera-video.md", "onvif-video.yaml", sample(t, "onvif-video.yaml", identity, only,
		"  capacity: 1\n", "  capacity: 1\n  allowedNamespaces: [default]\n"))
	values := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(values, []byte(sample(t, "values/onvif-video.yaml", identity, only, "tag: v0.1.0", "tag: "+mesh.DevTag)), 0o600))
	t.Cleanup(func() {
		shell(t, "helm uninstall cameras --namespace default --ignore-not-found\n"+
			"kubectl delete --ignore-not-found rolebinding,role akri-secret-onvif-video-credentials\n"+
			"kubectl delete --ignore-not-found secret camera-broker")
	})
	dir := t.TempDir() + "/"
	files := []string{"tls.crt", dir + "tls.crt", "tls.key", dir + "tls.key", "port-forward.log", dir + "port-forward.log"}
	run("Create a certificate and a token", files...)
	run("Find the cameras")
	awaitBrokers(t, "default", "onvif-video", len(cameras))
	page := run("Watch the video", files...)

	viewer := clientOf(t, "service/onvif-video-viewer", "443")
	for name := range cameras {
		require.Contains(t, page, fmt.Sprintf("data-stream=\"cameras/%s/stream\"", name))
		requireVideo(t, viewer, "/cameras/"+name+"/stream")
	}
	// The page must be closed before its server ends.
	require.True(t, t.Run("page", func(t *testing.T) {
		ages := rtsp.OpenPage(t, viewer.address, viewer.token, cameras).Watch(t, watched(t))
		slices.Sort(ages)
		t.Logf("%.1f frames a second of each camera; latency from the camera's clock to the page: p50 %s, p99 %s",
			float64(len(ages)/len(cameras))/watched(t).Seconds(), ages[len(ages)/2], ages[len(ages)*99/100])
	}))
	requireFramesOf(t, "onvif-video", cameras)
	requireNoFramesElsewhere(t, "onvif-video")

	run("With Helm values", "deploy/samples/values/onvif-video.yaml", values)
	require.Contains(t, shell(t, "helm get manifest cameras --namespace default"), "kind: Configuration\nmetadata:\n  name: onvif-video\n")
	requireFramesOf(t, "onvif-video", cameras)
	run("Remove it")
}

// requireFramesOf requires that the Service of a Configuration has recent frames of all its
// cameras, and that the Service of each device has frames of its camera alone.
func requireFramesOf(t *testing.T, configuration string, cameras map[string]*rtsp.Camera) {
	t.Helper()
	seen := map[string]bool{}
	from := awaitBrokers(t, "default", configuration, len(cameras))[0]
	await(t, "frames of all cameras from the Service of the Configuration", func(ctx context.Context) error {
		name, err := videoFrom(ctx, t, &from, configuration+"-svc", cameras)
		if err != nil {
			return err
		}
		seen[name] = true
		if len(seen) < len(cameras) {
			return fmt.Errorf("frames of %v", seen)
		}
		return nil
	})

	for name := range cameras {
		service := instanceName(configuration, name, "", true) + "-svc"
		for range 3 { // a Service of both cameras would choose one of them at random
			await(t, "a frame from "+service, func(ctx context.Context) error {
				got, err := videoFrom(ctx, t, &from, service, cameras)
				if err == nil {
					require.Equal(t, name, got)
				}
				return err
			})
		}
	}
}

// requireNoFramesElsewhere requires that a namespace that may not use the cameras gets none: its
// Pods that request one are refused, and the Service refuses clients that do not have the token,
// whose Secret is in the namespace of the cameras.
func requireNoFramesElsewhere(t *testing.T, configuration string) {
	t.Helper()
	request := strings.Replace(ownPod("elsewhere", configuration), "namespace: default", "namespace: "+mesh.Namespace, 1)
	await(t, "the refusal of a Pod that requests a camera", func(ctx context.Context) error {
		_, err := akri.Kubectl(ctx, request, "create", "--dry-run=server", "-f", "-")
		if err == nil {
			return errors.New("the Pod is accepted")
		}
		if !strings.Contains(err.Error(), "may not use akri.sh/"+configuration+";") {
			return err
		}
		return nil
	})

	others, err := akri.Kubernetes.CoreV1().Pods(mesh.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=broker-controller"})
	require.NoError(t, err)
	require.NotEmpty(t, others.Items)
	client := cameraCredentials(t)
	for _, token := range []string{"", "0", client.token[1:]} {
		client.token = token
		_, err := client.frame(t.Context(), &others.Items[0], configuration+"-svc.default")
		require.Equal(t, codes.Unauthenticated, status.Code(err), "%v", err)
	}
}

// requireVideo reads the beginning of a video.
func requireVideo(t *testing.T, client *cameraClient, path string) {
	t.Helper()
	body, kind := client.get(t, path)
	defer body.Close()
	require.Regexp(t, `^video/mp4; codecs="avc1\.[0-9A-F]{6}"$`, kind)
	_, err := io.CopyN(io.Discard, body, 16<<10)
	require.NoError(t, err)
}

// cameraClient is a client of a camera broker or a viewer, with TLS and the token of the Secret
// camera-broker.
type cameraClient struct {
	address string
	token   string
	tls     *tls.Config
}

// clientOf returns a client of an object to which a port is forwarded.
func clientOf(t *testing.T, object, port string) *cameraClient {
	t.Helper()
	c := cameraCredentials(t)
	c.address = forward(t, "default", object, port)
	return c
}

func cameraCredentials(t *testing.T) *cameraClient {
	t.Helper()
	secret, err := akri.Kubernetes.CoreV1().Secrets("default").Get(t.Context(), "camera-broker", metav1.GetOptions{})
	require.NoError(t, err)
	authorities := x509.NewCertPool()
	require.True(t, authorities.AppendCertsFromPEM(secret.Data["tls.crt"]))
	return &cameraClient{
		token: string(secret.Data["token"]),
		tls:   &tls.Config{RootCAs: authorities, ServerName: "camera.default.svc", MinVersion: tls.VersionTLS12},
	}
}

// get returns the body and its media type.
func (c *cameraClient) get(t *testing.T, path string) (body io.ReadCloser, kind string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+c.address+path, nil)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+c.token)
	response, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: c.tls}}).Do(request)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode)
	return response.Body, response.Header.Get("Content-Type")
}

// videoFrom gets a recent frame from a Service and returns the name of its camera, which the
// picture must be of, too.
func videoFrom(ctx context.Context, t *testing.T, from *corev1.Pod, service string, cameras map[string]*rtsp.Camera) (name string, err error) {
	t.Helper()
	reply, err := frameOf(ctx, t, from, service)
	if err != nil {
		return "", err
	}
	picture, err := jpeg.Decode(bytes.NewReader(reply.GetFrame()))
	if err != nil {
		return "", err
	}
	require.Contains(t, cameras, reply.GetCamera())
	made, err := cameras[reply.GetCamera()].Time(picture)
	if err != nil {
		return "", err
	}
	if age := time.Since(made); age > time.Minute {
		return "", fmt.Errorf("the frame of %s is %s old", reply.GetCamera(), age)
	}
	return reply.GetCamera(), nil
}

// frameOf calls GetFrame of a Service from the network of a Pod.
func frameOf(ctx context.Context, t *testing.T, from *corev1.Pod, service string) (*camera.NotifyResponse, error) {
	t.Helper()
	return cameraCredentials(t).frame(ctx, from, service)
}

// frame calls GetFrame of a Service with the token of the client.
func (c *cameraClient) frame(ctx context.Context, from *corev1.Pod, service string) (*camera.NotifyResponse, error) {
	conn, err := connectFrom(ctx, from, service, "443", credentials.NewTLS(c.tls))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.token), 20*time.Second)
	defer cancel()
	return camera.NewCameraClient(conn).GetFrame(ctx, &camera.NotifyRequest{})
}
