package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"akri.sh/integration/cluster/binaries"
	"akri.sh/integration/devices/netns"
)

// EtcdMetrics returns the metrics of etcd in the Prometheus text format.
func (c *Cluster) EtcdMetrics(ctx context.Context) ([]byte, error) {
	text, err := c.requestEtcd(ctx, http.MethodGet, "metrics", "")
	if err != nil {
		return nil, fmt.Errorf("get metrics of etcd: %w", err)
	}
	return text, nil
}

// EtcdRevision returns the revision of the last change in etcd.
func (c *Cluster) EtcdRevision(ctx context.Context) (string, error) {
	// The key, /none in Base64, is that of no object. The header of each response has the revision.
	text, err := c.requestEtcd(ctx, http.MethodPost, "v3/kv/range", `{"key":"L25vbmU=","count_only":true}`)
	var response struct{ Header struct{ Revision string } }
	if err == nil {
		err = json.Unmarshal(text, &response)
	}
	if err != nil {
		return "", fmt.Errorf("get revision of etcd: %w", err)
	}
	return response.Header.Revision, nil
}

// CompactEtcd deletes the history before the revision, as kube-apiserver does every five minutes.
func (c *Cluster) CompactEtcd(ctx context.Context, revision string) error {
	_, err := c.requestEtcd(ctx, http.MethodPost, "v3/kv/compaction", fmt.Sprintf(`{"revision":%q,"physical":true}`, revision))
	if err != nil {
		return fmt.Errorf("compact etcd: %w", err)
	}
	return nil
}

// SnapshotEtcd returns a snapshot of etcd, as `etcdctl snapshot save` writes it.
func (c *Cluster) SnapshotEtcd(ctx context.Context) ([]byte, error) {
	text, err := c.requestEtcd(ctx, http.MethodPost, "v3/maintenance/snapshot", "{}")
	if err != nil {
		return nil, fmt.Errorf("get snapshot of etcd: %w", err)
	}

	var snapshot []byte
	for parts := json.NewDecoder(bytes.NewReader(text)); ; {
		var part struct {
			Result struct{ Blob []byte }
			Error  json.RawMessage
		}
		err := parts.Decode(&part)
		if errors.Is(err, io.EOF) {
			return snapshot, nil
		}
		if err == nil && part.Error != nil {
			err = fmt.Errorf("etcd: %s", part.Error)
		}
		if err != nil {
			return nil, fmt.Errorf("read snapshot of etcd: %w", err)
		}
		snapshot = append(snapshot, part.Result.Blob...)
	}
}

// RestoreEtcd replaces the data of etcd by a snapshot, as the documentation of Kubernetes describes
// it, and returns when the API server is ready. The processes of the control plane stop meanwhile,
// because controllers that have seen what was deleted since would delete what belongs to it. The
// processes of the nodes keep running. The revisions of etcd continue far above those that they
// have seen.
func (c *Cluster) RestoreEtcd(ctx context.Context, snapshot []byte) error {
	if c.machine == nil {
		return ErrExternal
	}
	bin, err := binaries.Ensure(ctx, c.step, "etcdutl")
	if err != nil {
		return err
	}
	file := c.path("etcd-snapshot")
	if err := os.WriteFile(file, snapshot, 0o600); err != nil {
		return fmt.Errorf("write snapshot of etcd: %w", err)
	}
	defer func() { _ = os.Remove(file) }()

	for _, d := range []daemon{c.controllerManager(), c.scheduler(), c.apiServer(), c.etcd()} {
		if err := c.cgroups.stop(ctx, d.cgroup, 10*time.Second); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(c.path("etcd")); err != nil {
		return fmt.Errorf("remove data of etcd: %w", err)
	}
	err = c.run(ctx, filepath.Join(bin, "etcdutl"), "snapshot", "restore", file, "--data-dir="+c.path("etcd"),
		"--bump-revision=1000000000", "--mark-compacted")
	if err != nil {
		return err
	}

	if err := c.start(ctx, c.etcd()); err != nil {
		return err
	}
	if err := c.StartAPI(ctx); err != nil {
		return err
	}
	_, err = c.RestartExited(ctx)
	return err
}

// requestEtcd sends an HTTP request with a body in JSON.
func (c *Cluster) requestEtcd(ctx context.Context, method, path, body string) ([]byte, error) {
	if c.machine == nil {
		return nil, ErrExternal
	}
	request, err := http.NewRequestWithContext(ctx, method, c.servers().EtcdClientURL+"/"+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	// http.Transport dials in another goroutine, so this function enters the network namespace.
	dial := func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = netns.Do(filepath.Join(netnsDir, c.netns(controlPlane)), func() (err error) {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, text)
	}
	return text, err
}
