package service_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"runtime/metrics"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"akri.sh/libs/admin"
	"akri.sh/libs/listentest"
	"akri.sh/libs/metricstest"
	"akri.sh/libs/service"
)

type config struct {
	Greeting string `help:"What to say." required:""`
	Guarded  string `help:"Address of metrics with TLS."`
}

// TestMain turns the test binary into a service when BE_THE_SERVICE is set.
func TestMain(m *testing.M) {
	if os.Getenv("BE_THE_SERVICE") == "" {
		os.Exit(m.Run())
	}
	if service.Called("second") {
		service.Main("greeter second", "Greets again.", greet)
		return
	}
	service.Main("greeter", "Greets.", greet,
		service.Command[config]{Name: "echo", Help: "Write the greeting.", Run: func(_ context.Context, c config) error {
			fmt.Println(c.Greeting)
			if c.Greeting == "refused" {
				return errors.New("no greeting")
			}
			return nil
		}})
}

func greet(c config, env service.Env) (greeting, error) {
	if c.Guarded != "" {
		*env.Guard = admin.Guard{
			Address: c.Guarded, Admit: func(http.Handler) http.Handler { return http.NotFoundHandler() },
			Certificate:        func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.New("no certificate") },
			RefusedConnections: prometheus.NewCounter(prometheus.CounterOpts{Name: "refused"}),
		}
	}
	return greeting{c, env}, nil
}

type greeting struct {
	config config
	env    service.Env
}

func (g greeting) Run(ctx context.Context) error {
	garbage := []metrics.Sample{{Name: "/gc/gogc:percent"}, {Name: "/gc/gomemlimit:bytes"}}
	metrics.Read(garbage)
	g.env.Log.Info(g.config.Greeting, zap.Uint64("gogc", garbage[0].Value.Uint64()), zap.Uint64("limit", garbage[1].Value.Uint64()))
	<-ctx.Done()
	return nil
}

func greeter(arguments ...string) *exec.Cmd {
	command := exec.Command(os.Args[0], arguments...)
	command.Env = append(os.Environ(), "BE_THE_SERVICE=1", "AKRI_GREETING=hello", "AKRI_ADMIN_ADDRESS=127.0.0.1:0")
	return command
}

// A second service of the binary has its own help, and its flags follow its name.
func TestSecondService(t *testing.T) {
	output, err := greeter("second", "--help").CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.Contains(t, string(output), "Greets again.")
	output, err = greeter("second", "--log-level=loud").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(output), "greeter second: --log-level must be one of")
}

func TestVersionAndHelp(t *testing.T) {
	output, err := greeter("--version").CombinedOutput()
	require.NoError(t, err)
	require.Equal(t, "greeter dev\n", string(output))
	output, err = greeter("--help").CombinedOutput()
	require.NoError(t, err)
	require.Contains(t, string(output), "$AKRI_GREETING")
	require.Contains(t, string(output), "Default: :8080")
}

// A command has the environment variables and the flags of the service.
func TestCommand(t *testing.T) {
	output, err := greeter("echo").Output()
	require.NoError(t, err)
	require.Equal(t, "hello\n", string(output))
	command := greeter("echo", "--greeting=refused")
	var problem strings.Builder
	command.Stderr = &problem
	output, err = command.Output()
	require.ErrorContains(t, err, "exit status 1")
	require.Equal(t, "refused\n", string(output))
	require.Equal(t, "no greeting\n", problem.String())
	text, err := greeter("dance").CombinedOutput()
	require.ErrorContains(t, err, "exit status 2")
	require.Contains(t, string(text), "unexpected argument dance")
}

func TestMetricsPortSetsAdminAddress(t *testing.T) {
	command := greeter()
	command.Env = append(os.Environ(), "BE_THE_SERVICE=1", "AKRI_GREETING=hello", "METRICS_PORT=70000")
	output, err := command.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(output), "listen tcp: address 70000: invalid port")
}

// Anyone reads the metrics at the admin address, unless the service guards them.
func TestGuardedMetrics(t *testing.T) {
	for name, c := range map[string]struct {
		arguments []string
		code      int
	}{
		"not guarded": {nil, http.StatusOK},
		"guarded":     {[]string{"--guarded=" + listentest.Address(t)}, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			address := listentest.Address(t)
			runsWhile(t, greeter(append(c.arguments, "--admin-address="+address)...), func() {
				require.Equal(t, c.code, status(t, "http://"+address+"/metrics"))
				require.Equal(t, http.StatusOK, status(t, "http://"+address+"/healthz"))
				require.Equal(t, http.StatusOK, status(t, "http://"+address+"/readyz"))
			})
		})
	}
	output, err := greeter("--guarded=:70000").CombinedOutput()
	require.Error(t, err, "a service does not run without its metrics")
	require.Contains(t, string(output), "listen on the address of the metrics")
}

// status returns the status of a response, as soon as there is one.
func status(t *testing.T, url string) (code int) {
	t.Helper()
	require.Eventually(t, func() bool {
		response, err := http.Get(url)
		if err != nil {
			return false
		}
		code = response.StatusCode
		return response.Body.Close() == nil
	}, time.Minute, 10*time.Millisecond)
	return code
}

func TestUnknownFlagIsRefused(t *testing.T) {
	output, err := greeter("--no-such-flag").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(output), "unknown flag --no-such-flag")
}

func TestSignalStopsTheService(t *testing.T) {
	require.Contains(t, runs(t, greeter()), `"message":"stopped"`)
}

func TestTextLogs(t *testing.T) {
	logs := runs(t, greeter("--log-format=text"))
	require.Regexp(t, `(?m)^20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\tINFO\thello\t\{"service": "greeter"`, logs)
}

func TestDefaultOfGOGC(t *testing.T) {
	for gogc, want := range map[string]string{"": `"gogc":50`, "80": `"gogc":80`} {
		command := greeter()
		command.Env = append(command.Env, "GOGC="+gogc)
		require.Contains(t, runs(t, command), want)
	}
}

func TestMemoryLimit(t *testing.T) {
	for limit, want := range map[string]string{"": fmt.Sprintf(`"limit":%d`, int64(math.MaxInt64)), "100MiB": fmt.Sprintf(`"limit":%d`, 90<<20)} {
		command := greeter()
		command.Env = append(command.Env, "GOMEMLIMIT="+limit)
		require.Contains(t, runs(t, command), want)
	}
}

// runs starts a service, stops it once it is running and returns its log.
func runs(t *testing.T, command *exec.Cmd) string {
	t.Helper()
	return runsWhile(t, command, func() {})
}

// runsWhile is runs with a function that is called before the service is stopped.
func runsWhile(t *testing.T, command *exec.Cmd, call func()) string {
	t.Helper()
	logs, err := command.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	buffer := make([]byte, 4096)
	var seen strings.Builder
	for !strings.Contains(seen.String(), "hello") {
		n, err := logs.Read(buffer)
		require.NoError(t, err)
		seen.Write(buffer[:n])
	}
	call()
	require.NoError(t, command.Process.Signal(syscall.SIGTERM))
	rest, err := io.ReadAll(logs)
	require.NoError(t, err)
	require.NoError(t, command.Wait())
	return seen.String() + string(rest)
}

func TestMetricsAreDocumented(t *testing.T) {
	metricstest.Check(t, service.NewRegistry(), "../../docs/metrics.md", "Every service")
}
