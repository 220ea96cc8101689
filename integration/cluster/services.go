package cluster

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// controlPlaneProxy is the kube-proxy that makes ClusterIPs reachable for the API server, which
// calls webhooks. It has the name of the first node, because kube-proxy waits 30 s for a node of
// its name.
func (c *Cluster) controlPlaneProxy() daemon {
	return c.controlPlaneDaemon("kube-proxy", "--config="+c.nodes[0].configFile("kube-proxy.yaml"))
}

func (c *Cluster) applyDNS(ctx context.Context) error {
	content, err := render("dns.yaml", map[string]string{"DNS": dnsServiceIP, "DNSImage": dnsImage})
	if err != nil {
		return err
	}
	if err := writeFile(c.path("dns.yaml"), content); err != nil {
		return err
	}
	_, err = combined(c.Kubectl(ctx, "apply", "--validate=false", "--filename", c.path("dns.yaml")))
	return err
}

func (c *Cluster) awaitDNS(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	return c.await(ctx, "cluster DNS", func(ctx context.Context) error {
		set, err := client.AppsV1().DaemonSets("kube-system").Get(ctx, "coredns", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if int(set.Status.NumberReady) < len(c.nodes) {
			return fmt.Errorf("%d of %d DNS servers are ready", set.Status.NumberReady, len(c.nodes))
		}
		return nil
	})
}

// awaitServiceAccount waits for the default service account, without which Kubernetes refuses pods.
func (c *Cluster) awaitServiceAccount(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	return c.await(ctx, "the default service account", func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}
