package rtsp_test

import (
	"bytes"
	"image/jpeg"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// python is that of Debian, which has gRPC.
const python = "/usr/bin/python3"

// TestGeneratedClient calls GetFrame, with TLS and a token, from Python with the code that protoc
// generates from camera.proto, as clients of upstream's brokers do.
func TestGeneratedClient(t *testing.T) {
	t.Parallel()
	began := time.Now()
	camera := startCamera(t)
	secrets := writeSecrets(t)
	b := startBroker(t, append(secrets, "RTSP_URL="+camera.URL("127.0.0.1"), "CAMERA_NAME=gate")...)
	generated := t.TempDir()
	output, err := exec.CommandContext(t.Context(), "protoc", "--proto_path=../../../proto/camera", "--python_out="+generated,
		"--grpc_out="+generated, "--plugin=protoc-gen-grpc=/usr/bin/grpc_python_plugin", "camera.proto").CombinedOutput()
	require.NoError(t, err, string(output))
	call := func(token string) (output []byte, problem string) {
		command := exec.CommandContext(t.Context(), python, "client.py", b.address, "--ca="+setting(t, secrets, "CAMERAS_CA_FILE"),
			"--name=brokers.test", "--token="+token)
		var text strings.Builder
		command.Env, command.Stderr = append(os.Environ(), "PYTHONPATH="+generated), &text
		output, err := command.Output()
		if err == nil {
			return output, ""
		}
		return nil, text.String()
	}

	reply, problem := call(token)
	require.Empty(t, problem)
	name, frame, _ := bytes.Cut(reply, []byte("\n"))
	require.Equal(t, "gate", string(name))
	picture, err := jpeg.Decode(bytes.NewReader(frame))
	require.NoError(t, err)
	made, err := camera.Time(picture)
	require.NoError(t, err)
	require.WithinRange(t, made, began, time.Now())

	_, problem = call("wrong")
	require.Contains(t, problem, "UNAUTHENTICATED: ")
}

// setting returns the value of a setting.
func setting(t *testing.T, settings []string, name string) string {
	t.Helper()
	for _, setting := range settings {
		if value, found := strings.CutPrefix(setting, name+"="); found {
			return value
		}
	}
	require.FailNow(t, "no setting", name)
	return ""
}
