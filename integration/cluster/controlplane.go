package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"akri.sh/libs/kube/kubetest/controlplane"
)

// controlPlane is the scope name of the processes that run on no node.
const controlPlane = "cp"

func (m *machine) controlPlaneDaemon(name string, flags ...string) daemon {
	return daemon{
		name:   name,
		cgroup: m.cgroup(controlPlane, name),
		enter:  []string{inNetns(m.netns(controlPlane))},
		args:   append([]string{m.bin(name)}, flags...),
	}
}

// startControlPlane starts the control plane and returns when the API server is ready, the relay
// runs and the kubeconfig is written.
func (c *Cluster) startControlPlane(ctx context.Context, a *authority) error {
	if err := c.issueControlPlane(a); err != nil {
		return err
	}
	if err := c.servers().WriteServiceAccountKey(); err != nil {
		return err
	}
	for _, d := range []daemon{c.etcd(), c.apiServer()} {
		if err := c.start(ctx, d); err != nil {
			return err
		}
	}
	if err := c.startRelay(ctx, a); err != nil {
		return err
	}
	if err := c.awaitAPI(ctx); err != nil {
		return err
	}
	for _, d := range []daemon{c.controllerManager(), c.scheduler()} {
		if err := c.start(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) issueControlPlane(a *authority) error {
	hosts := []string{
		controlPlaneIP, apiServiceIP, "127.0.0.1", "localhost",
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}
	if err := a.issue("apiserver", identity{name: "kube-apiserver", hosts: hosts}); err != nil {
		return err
	}
	if err := a.issue("apiserver-kubelet-client", identity{name: "kube-apiserver", groups: []string{"system:masters"}}); err != nil {
		return err
	}
	for _, user := range []string{"kube-controller-manager", "kube-scheduler", "kube-proxy"} {
		if err := a.kubeconfig(c.path(user+".kubeconfig"), apiURL(controlPlaneIP, apiPort), identity{name: "system:" + user}); err != nil {
			return err
		}
	}
	return nil
}

// servers locates etcd and the API server inside the control plane's network namespace.
func (m *machine) servers() controlplane.Config {
	return controlplane.Config{
		Dir: m.path("pki"), EtcdDataDir: m.path("etcd"),
		EtcdClientURL: "http://127.0.0.1:2379", EtcdPeerURL: "http://127.0.0.1:2380",
		BindAddress: "0.0.0.0", SecurePort: strconv.Itoa(apiPort), ServiceCIDR: serviceCIDR,
	}
}

func (m *machine) etcd() daemon {
	return m.controlPlaneDaemon(controlplane.Etcd, m.servers().EtcdFlags()...)
}

func (m *machine) apiServer() daemon {
	pki := func(name string) string { return m.path("pki", name) }
	return m.controlPlaneDaemon(controlplane.APIServer, append(m.servers().APIServerFlags(),
		"--advertise-address="+controlPlaneIP,
		"--tls-cert-file="+pki("apiserver.crt"), "--tls-private-key-file="+pki("apiserver.key"), "--client-ca-file="+pki("ca.crt"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--kubelet-client-certificate="+pki("apiserver-kubelet-client.crt"),
		"--kubelet-client-key="+pki("apiserver-kubelet-client.key"),
		"--kubelet-certificate-authority="+pki("ca.crt"),
		// Logs and exec use the address because node names do not resolve.
		"--kubelet-preferred-address-types=InternalIP",
	)...)
}

func (m *machine) controllerManager() daemon {
	pki := func(name string) string { return m.path("pki", name) }
	return m.controlPlaneDaemon("kube-controller-manager",
		"--kubeconfig="+m.path("kube-controller-manager.kubeconfig"), "--leader-elect=false",
		// Each controller first requests its own credentials, which takes seconds at the default
		// rate.
		"--kube-api-qps=500", "--kube-api-burst=1000",
		"--use-service-account-credentials=true", "--service-account-private-key-file="+m.servers().ServiceAccountKey(), "--root-ca-file="+pki("ca.crt"),
		"--cluster-signing-cert-file="+pki("ca.crt"), "--cluster-signing-key-file="+pki("ca.key"),
	)
}

func (m *machine) scheduler() daemon {
	return m.controlPlaneDaemon("kube-scheduler", "--kubeconfig="+m.path("kube-scheduler.kubeconfig"), "--leader-elect=false")
}

func (m *machine) relay() daemon {
	return m.controlPlaneDaemon("relay", net.JoinHostPort("127.0.0.1", strconv.Itoa(apiPort)))
}

// startRelay opens a port on the host's loopback and passes it to a relay inside the control
// plane's network namespace.
func (c *Cluster) startRelay(ctx context.Context, a *authority) error {
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return fmt.Errorf("listen for the API relay: %w", err)
	}
	defer listener.Close()
	file, err := listener.File()
	if err != nil {
		return fmt.Errorf("share the API relay's listener: %w", err)
	}
	defer file.Close()
	relay := c.relay()
	relay.files = []*os.File{file}
	if err := c.start(ctx, relay); err != nil {
		return err
	}
	admin := identity{name: "admin", groups: []string{"system:masters"}}
	return a.kubeconfig(c.kubeconfig, apiURL("127.0.0.1", listener.Addr().(*net.TCPAddr).Port), admin)
}

func (c *Cluster) awaitAPI(ctx context.Context) error {
	config, err := c.RESTConfig()
	if err != nil {
		return err
	}
	return c.await(ctx, "the API server", func(ctx context.Context) error { return controlplane.Ready(ctx, config) },
		c.etcd(), c.apiServer(), c.relay())
}

// StopAPI stops the API server. etcd and all other processes keep running.
func (c *Cluster) StopAPI(ctx context.Context) error {
	if c.machine == nil {
		return ErrExternal
	}
	return c.cgroups.stop(ctx, c.apiServer().cgroup, 10*time.Second)
}

// KillAPI kills the API server with SIGKILL.
func (c *Cluster) KillAPI(ctx context.Context) error {
	if c.machine == nil {
		return ErrExternal
	}
	return c.kill(ctx, c.apiServer())
}

// StartAPI starts the API server again and returns when it is ready.
func (c *Cluster) StartAPI(ctx context.Context) error {
	if c.machine == nil {
		return ErrExternal
	}
	if err := c.start(ctx, c.apiServer()); err != nil {
		return err
	}
	return c.awaitAPI(ctx)
}

// RestartExited starts the controller manager, the scheduler and the proxy of the control plane if
// they have exited, and returns their names. A kubelet does that for static Pods. kube-scheduler
// exits if it finds its cache inconsistent, which happens when the API server was away.
func (c *Cluster) RestartExited(ctx context.Context) (names []string, err error) {
	if c.machine == nil {
		return nil, ErrExternal
	}
	for _, d := range []daemon{c.controllerManager(), c.scheduler(), c.controlPlaneProxy()} {
		if c.alive(d) == nil {
			continue
		}
		if err := c.start(ctx, d); err != nil {
			return names, err
		}
		names = append(names, d.name)
	}
	return names, nil
}
