package relay

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/rpc"
)

const (
	socketExtension = ".sock"
	// finishTimeout is the time that running calls of the kubelet have to finish: a preparation can
	// wait for a slot for so long.
	finishTimeout = 40 * time.Second
	// restartTimeout is that time if no other relay serves the kubelet: it waits for the next one.
	restartTimeout = 5 * time.Second
	// probeTimeout bounds the question whether a process serves a socket.
	probeTimeout = time.Second
)

// socket returns the path of the socket. Each Pod has its own, which ends with the random part of
// its name: the Pod that replaces this one serves the kubelet before this one ends, so that no call
// fails in between. The kubelet calls the relay that has registered last.
func (r *Relay) socket() string {
	name := akriv0.Driver
	if pod := r.ownPod.Name; pod != "" {
		name += "-" + pod[strings.LastIndexByte(pod, '-')+1:]
	}
	return filepath.Join(r.config.RegistryDir, name+socketExtension)
}

// otherSockets returns the sockets of other relays, also of those that have ended.
func (r *Relay) otherSockets() ([]string, error) {
	var others []string
	for _, pattern := range []string{akriv0.Driver + socketExtension, akriv0.Driver + "-*" + socketExtension} {
		paths, err := filepath.Glob(filepath.Join(r.config.RegistryDir, pattern))
		if err != nil {
			return nil, fmt.Errorf("list sockets of the kubelet's plugins: %w", err)
		}
		for _, path := range paths {
			if path != r.socket() {
				others = append(others, path)
			}
		}
	}
	return others, nil
}

// removeStaleSockets removes the sockets that killed relays have left. The kubelet would try to
// register each again and again.
func (r *Relay) removeStaleSockets(ctx context.Context) error {
	others, err := r.otherSockets()
	if err != nil {
		return err
	}
	for _, path := range others {
		if r.served(ctx, path) {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the socket of an earlier Pod: %w", err)
		}
		r.env.Log.Info("removed the socket of an earlier Pod", zap.String("socket", path))
	}
	return nil
}

// served reports whether another relay serves the socket, or whether that is unknown.
func (r *Relay) served(ctx context.Context, path string) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	served, err := rpc.Served(ctx, path)
	return served || err != nil && !errors.Is(err, fs.ErrNotExist)
}

// timeToFinish returns how long running calls of the kubelet have to finish when this relay
// ends. A preparation that is cut is repeated only after 60 to 90 s.
func (r *Relay) timeToFinish() time.Duration {
	others, err := r.otherSockets()
	if err != nil {
		return restartTimeout
	}
	for _, path := range others {
		if r.served(context.Background(), path) {
			return finishTimeout
		}
	}
	return restartTimeout
}
