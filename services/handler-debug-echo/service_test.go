package debugecho_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"akri.sh/libs/handler"
	"akri.sh/libs/handler/handlertest"
	"akri.sh/libs/service"
	debugecho "akri.sh/services/handler-debug-echo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run starts the handler and returns its registration and the path of its availability file.
func run(t *testing.T, shared bool) (*handlertest.Registration, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "availability.txt")
	return handlertest.Run(t, func(flags handler.Flags, env service.Env) (*handler.Server, error) {
		return debugecho.New(debugecho.Config{Flags: flags, InstancesShared: shared, AvailabilityFile: file}, env)
	}), file
}

func discover(t *testing.T, endpoint, details string) handlertest.Stream {
	t.Helper()
	return handlertest.Discover(t, 5*time.Second, endpoint, details) // shorter than resyncInterval
}

func devices(t *testing.T, stream handlertest.Stream) map[string]string {
	t.Helper()
	found := map[string]string{}
	for id, device := range handlertest.Devices(t, stream) {
		require.Len(t, device.GetProperties(), 1)
		found[id] = device.GetProperties()["DEBUG_ECHO_DESCRIPTION"]
	}
	return found
}

func TestDevicesAreTheDescriptions(t *testing.T) {
	request, _ := run(t, true)
	require.Equal(t, "debugEcho", request.GetName())
	require.True(t, request.GetShared())
	require.Equal(t, map[string]string{"foo": "foo", "bar": "bar"},
		devices(t, discover(t, request.GetEndpoint(), "descriptions: [foo, bar, foo]")))
	require.Empty(t, devices(t, discover(t, request.GetEndpoint(), "descriptions: []")))
}

func TestDevicesCanBeLocal(t *testing.T) {
	request, _ := run(t, false)
	require.False(t, request.GetShared())
}

func TestAvailabilityFile(t *testing.T) {
	request, file := run(t, true)
	stream := discover(t, request.GetEndpoint(), "descriptions: [foo]")
	require.Len(t, devices(t, stream), 1)
	require.NoError(t, os.WriteFile(file, []byte("it is OFFLINE now\n"), 0o600))
	require.Empty(t, devices(t, stream))
	require.NoError(t, os.WriteFile(file, []byte("ONLINE\n"), 0o600))
	require.Len(t, devices(t, stream), 1)
	require.NoError(t, os.WriteFile(file, []byte("OFFLINE"), 0o600))
	require.Empty(t, devices(t, stream))
	require.Empty(t, devices(t, discover(t, request.GetEndpoint(), "descriptions: [foo]")), "the first list of a new stream is empty")
	require.NoError(t, os.Remove(file))
	require.Len(t, devices(t, stream), 1)
}

func TestInvalidDetailsAreRefused(t *testing.T) {
	request, _ := run(t, true)
	for details, message := range map[string]string{
		"":                                     "descriptions: required",
		"descriptions: [a]\ndescription: b":    `unknown key "description"`,
		"descriptions: foo":                    "line 1",
		"descriptions: ['']":                   "must not contain an empty string",
		"descriptions:\n- a\n- {b: c}":         "line 3",
		"descriptions: [a]\ndescriptions: [b]": "already defined",
	} {
		_, err := discover(t, request.GetEndpoint(), details).Recv()
		require.Equal(t, codes.InvalidArgument, status.Code(err), details)
		require.ErrorContains(t, err, message)
	}
}

func TestRelativeAvailabilityFileIsRefused(t *testing.T) {
	_, err := debugecho.New(debugecho.Config{AvailabilityFile: "x"}, service.Env{})
	require.ErrorContains(t, err, "--availability-file")
}

// The webhook must accept and refuse the same details.
func TestDetailsAreThoseOfTheWebhook(t *testing.T) {
	request, _ := run(t, true)
	handlertest.CheckDetails(t, request.GetEndpoint())
}
