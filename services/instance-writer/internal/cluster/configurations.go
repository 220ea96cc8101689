package cluster

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// lookAgain is how often a Configuration that the watch does not bring is asked for.
const lookAgain = time.Second

// Configuration returns the Configuration, or nil when the API server has none: its absence from a
// copy is no proof. It must not be changed.
func (c *Cluster) Configuration(ctx context.Context, key types.NamespacedName) (*akriv0.Configuration, error) {
	if known, ok := c.configurations.Get(key.String()); ok {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found, err := c.configurationClient.In(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // none is an answer
	}
	if err != nil {
		return nil, fmt.Errorf("get Configuration: %w", err)
	}
	return found, nil
}

// Await waits until the watch has brought the Configuration with the uid, though not for longer
// than `within`. It returns false when there is none.
func (c *Cluster) Await(ctx context.Context, key types.NamespacedName, uid types.UID, within time.Duration) (bool, error) {
	late := time.NewTimer(within)
	defer late.Stop()
	for {
		changed := c.next()
		if known, ok := c.configurations.Get(key.String()); ok && known.UID == uid {
			return true, nil
		}
		if exists, err := c.exists(ctx, key, uid); err == nil && !exists {
			return false, nil
		}
		select {
		case <-changed:
		case <-time.After(lookAgain):
		case <-late.C:
			return true, nil // as far as is known: when it comes it is looked at again
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

func (c *Cluster) exists(ctx context.Context, key types.NamespacedName, uid types.UID) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found, err := c.configurationClient.In(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get Configuration: %w", err)
	}
	return found.UID == uid, nil
}

func (c *Cluster) next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

func (c *Cluster) announce() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.changed)
	c.changed = make(chan struct{})
}

// UpdateStatus writes the status of the Configuration if nobody changed it meanwhile.
func (c *Cluster) UpdateStatus(ctx context.Context, configuration *akriv0.Configuration) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := c.configurationClient.In(configuration.Namespace).UpdateStatus(ctx, configuration, metav1.UpdateOptions{})
	if c.count("status", err) != nil {
		return fmt.Errorf("update Configuration status: %w", err)
	}
	return nil
}

// Record writes an Event about the Configuration.
func (c *Cluster) Record(ctx context.Context, configuration *akriv0.Configuration, kind, reason, message string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	now := metav1.Now()
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: configuration.Name + ".", Namespace: configuration.Namespace},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: akriv0.GroupVersion.String(), Kind: "Configuration", Namespace: configuration.Namespace,
			Name: configuration.Name, UID: configuration.UID, ResourceVersion: configuration.ResourceVersion,
		},
		Type: kind, Reason: reason, Message: message, Source: corev1.EventSource{Component: "akri-instance-writer"},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	_, err := c.eventClient.In(configuration.Namespace).Create(ctx, event, metav1.CreateOptions{})
	if c.count("event", err) != nil {
		return fmt.Errorf("create Event: %w", err)
	}
	return nil
}
