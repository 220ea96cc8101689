package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"k8s.io/client-go/kubernetes"
)

// controlPlane names the scope of what runs on no node.
const controlPlane = "cp"

func (m *machine) controlPlaneDaemon(name string, flags ...string) daemon {
	return daemon{
		name:   name,
		cgroup: m.cgroup(controlPlane, name),
		enter:  []string{inNetns(m.netns(controlPlane))},
		args:   append([]string{m.bin(name)}, flags...),
	}
}

// startControlPlane returns when the API server is ready to serve, with the relay to it running and the kubeconfig written.
func (c *Cluster) startControlPlane(ctx context.Context, a *authority) error {
	if err := c.issueControlPlane(a); err != nil {
		return err
	}
	etcd, server := c.etcd(), c.apiServer()
	for _, d := range []daemon{etcd, server} {
		if err := c.start(ctx, d); err != nil {
			return err
		}
	}
	if err := c.startRelay(ctx, a); err != nil {
		return err
	}
	if err := c.awaitAPI(ctx, etcd, server, c.relay()); err != nil {
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

// etcd does not wait for the disk: a cluster of this kind is thrown away when the machine crashes.
func (m *machine) etcd() daemon {
	return m.controlPlaneDaemon("etcd", "--data-dir="+m.path("etcd"), "--unsafe-no-fsync", "--log-level=warn")
}

func (m *machine) apiServer() daemon {
	pki := func(name string) string { return m.path("pki", name) }
	return m.controlPlaneDaemon("kube-apiserver",
		"--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=0.0.0.0", "--secure-port="+strconv.Itoa(apiPort), "--advertise-address="+controlPlaneIP,
		"--tls-cert-file="+pki("apiserver.crt"), "--tls-private-key-file="+pki("apiserver.key"), "--client-ca-file="+pki("ca.crt"),
		"--service-account-key-file="+pki("sa.pub"), "--service-account-signing-key-file="+pki("sa.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--service-cluster-ip-range="+serviceCIDR,
		"--kubelet-client-certificate="+pki("apiserver-kubelet-client.crt"),
		"--kubelet-client-key="+pki("apiserver-kubelet-client.key"),
		"--kubelet-certificate-authority="+pki("ca.crt"),
		// Node names do not resolve; logs and exec need an address.
		"--kubelet-preferred-address-types=InternalIP",
	)
}

func (m *machine) controllerManager() daemon {
	pki := func(name string) string { return m.path("pki", name) }
	return m.controlPlaneDaemon("kube-controller-manager",
		"--kubeconfig="+m.path("kube-controller-manager.kubeconfig"), "--leader-elect=false",
		// Each of its controllers begins with calls for credentials of its own; at the default rate that takes seconds.
		"--kube-api-qps=500", "--kube-api-burst=1000",
		"--use-service-account-credentials=true", "--service-account-private-key-file="+pki("sa.key"), "--root-ca-file="+pki("ca.crt"),
		"--cluster-signing-cert-file="+pki("ca.crt"), "--cluster-signing-key-file="+pki("ca.key"),
	)
}

func (m *machine) scheduler() daemon {
	return m.controlPlaneDaemon("kube-scheduler", "--kubeconfig="+m.path("kube-scheduler.kubeconfig"), "--leader-elect=false")
}

func (m *machine) relay() daemon {
	return m.controlPlaneDaemon("relay", net.JoinHostPort("127.0.0.1", strconv.Itoa(apiPort)))
}

// startRelay opens a port on the machine's loopback and hands it to a relay inside the control plane's network namespace.
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

func (c *Cluster) awaitAPI(ctx context.Context, daemons ...daemon) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err = wait(ctx, 50*time.Millisecond, func() error {
		for _, d := range daemons {
			if err := c.alive(d); err != nil {
				cancel() // it will not come back
				return err
			}
		}
		return apiReady(ctx, client)
	})
	if err != nil {
		return fmt.Errorf("wait for the API server: %w", err)
	}
	return nil
}

// StopAPI takes the API server away; etcd and all else run on.
func (c *Cluster) StopAPI(ctx context.Context) error {
	if c.machine == nil {
		return ErrExternal
	}
	return c.cgroups.stop(ctx, c.apiServer().cgroup, 10*time.Second)
}

// StartAPI brings the API server back and returns when it is ready.
func (c *Cluster) StartAPI(ctx context.Context) error {
	if c.machine == nil {
		return ErrExternal
	}
	if err := c.start(ctx, c.apiServer()); err != nil {
		return err
	}
	return c.awaitAPI(ctx, c.etcd(), c.apiServer(), c.relay())
}

func apiReady(ctx context.Context, client kubernetes.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
	return err
}
