package mesh

import (
	"context"
	"encoding/json"
	"fmt"
)

// Recover ends an operation of helm that was killed. helm refuses every other operation on such a
// release. Its documentation describes the way back: remove an installation that has not ended, and
// roll back an upgrade. No other helm may work on the release.
func (m *Mesh) Recover(ctx context.Context) error {
	status, err := m.unfinished(ctx)
	if err != nil {
		return err
	}
	switch status {
	case "":
		return nil
	case "pending-upgrade", "pending-rollback":
		_, err = m.Helm(ctx, "rollback", Release, "--namespace", Namespace)
	default: // pending-install, uninstalling
		// The hooks need images and services, which may be missing.
		_, err = m.Helm(ctx, "uninstall", Release, "--namespace", Namespace, "--no-hooks", "--wait", "--timeout", "1m")
	}
	return err
}

// unfinished returns the status of the release if an operation on it has not ended, or "".
func (m *Mesh) unfinished(ctx context.Context) (string, error) {
	text, err := m.Helm(ctx, "list", "--namespace", Namespace, "--filter", "^"+Release+"$", "--pending", "--uninstalling", "--output", "json")
	if err != nil {
		return "", err
	}
	var releases []struct{ Status string }
	if err := json.Unmarshal([]byte(text), &releases); err != nil {
		return "", fmt.Errorf("read the list of releases: %w", err)
	}
	if len(releases) == 0 {
		return "", nil
	}
	return releases[0].Status, nil
}
