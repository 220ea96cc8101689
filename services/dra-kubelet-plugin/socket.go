package drakubeletplugin

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
	// restartTimeout is the time that running calls of the kubelet have to finish if no other
	// instance of the service serves the kubelet: it waits for the next one.
	restartTimeout = 5 * time.Second
	// probeTimeout bounds the question whether a process serves a socket.
	probeTimeout = time.Second
)

// socket returns the path of the socket. Each Pod has its own, which ends with the random part of
// its name: the Pod that replaces this one serves the kubelet before this one ends, so that no call
// fails in between. The kubelet calls the instance that has registered last.
func (s *Service) socket() string {
	name := akriv0.Driver
	if pod := s.ownPod.Name; pod != "" {
		name += "-" + pod[strings.LastIndexByte(pod, '-')+1:]
	}
	return filepath.Join(s.config.RegistryDir, name+socketExtension)
}

// otherSockets returns the sockets of other instances, also of those that have ended.
func (s *Service) otherSockets() ([]string, error) {
	var others []string
	for _, pattern := range []string{akriv0.Driver + socketExtension, akriv0.Driver + "-*" + socketExtension} {
		paths, err := filepath.Glob(filepath.Join(s.config.RegistryDir, pattern))
		if err != nil {
			return nil, fmt.Errorf("list sockets of the kubelet's plugins: %w", err)
		}
		for _, path := range paths {
			if path != s.socket() {
				others = append(others, path)
			}
		}
	}
	return others, nil
}

// removeStaleSockets removes the sockets that killed instances have left. The kubelet would try to
// register each again and again.
func (s *Service) removeStaleSockets(ctx context.Context) error {
	others, err := s.otherSockets()
	if err != nil {
		return err
	}
	for _, path := range others {
		if s.served(ctx, path) {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the socket of an earlier instance: %w", err)
		}
		s.env.Log.Info("removed the socket of an earlier instance", zap.String("socket", path))
	}
	return nil
}

// served reports whether another instance serves the socket, or whether that is unknown.
func (s *Service) served(ctx context.Context, path string) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	served, err := rpc.Served(ctx, path)
	return served || err != nil && !errors.Is(err, fs.ErrNotExist)
}

// timeToFinish returns how long running calls of the kubelet have to finish when this instance
// ends. A preparation that is cut is repeated only after 60 to 90 s.
func (s *Service) timeToFinish() time.Duration {
	others, err := s.otherSockets()
	if err != nil {
		return restartTimeout
	}
	for _, path := range others {
		if s.served(context.Background(), path) {
			return prepareTimeout
		}
	}
	return restartTimeout
}
