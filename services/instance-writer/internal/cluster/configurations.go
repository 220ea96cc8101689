package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// configurationPollInterval is the interval of requests for a Configuration that the watch does not
// deliver.
const configurationPollInterval = time.Second

// trimConfiguration drops the fields that this service does not use.
func trimConfiguration(c *akriv0.Configuration) {
	c.Annotations, c.Labels = nil, nil
	c.Spec.BrokerSpec, c.Spec.InstanceServiceSpec, c.Spec.ConfigurationServiceSpec = nil, nil, nil
	c.Spec.InstanceServiceMetadata, c.Spec.ConfigurationServiceMetadata = nil, nil
}

// ConfigurationRevision returns the resourceVersion up to which the watch has delivered all changes
// of Configurations. It returns 0 if resourceVersions are not numbers; those of etcd are.
func (c *Cluster) ConfigurationRevision() uint64 {
	revision, _ := strconv.ParseUint(c.Configurations.GetStore().LastStoreSyncResourceVersion(), 10, 64)
	return revision
}

// Configuration returns the Configuration, or nil if the API server has none. It queries the API
// server if the cache has none.
func (c *Cluster) Configuration(ctx context.Context, key types.NamespacedName) (*akriv0.Configuration, error) {
	if cached, ok := c.Configurations.Get(key.String()); ok {
		return cached, nil
	}
	return c.getConfiguration(ctx, key)
}

func (c *Cluster) getConfiguration(ctx context.Context, key types.NamespacedName) (*akriv0.Configuration, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	configuration, err := c.configurationClient.In(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // nil means that it does not exist
	}
	if err != nil {
		return nil, fmt.Errorf("get Configuration: %w", err)
	}
	return configuration, nil
}

// ErrBusy is returned while too many reports are on Configurations that the watch has not
// delivered.
var ErrBusy = errors.New("too many reports on unknown Configurations")

// configurationVersion distinguishes a Configuration from an earlier one of the same name.
type configurationVersion struct {
	types.NamespacedName

	uid types.UID
}

// WaitForConfiguration waits until the watch has delivered the Configuration with the uid. It
// returns false if the API server does not have it, and true after the timeout.
//
// A Configuration that does not exist is looked up once, because uids do not return. Lookups have a
// limited rate, so that a node that invents Configurations does not slow down others.
func (c *Cluster) WaitForConfiguration(
	ctx context.Context, key types.NamespacedName, uid types.UID, timeout time.Duration,
) (exists bool, err error) {
	expired := time.After(timeout)
	late, version := ErrBusy, configurationVersion{key, uid}
	for {
		_, changed := c.configurationChange.Get()
		if cached, ok := c.Configurations.Get(key.String()); ok && cached.UID == uid {
			return true, nil
		}
		if _, absent := c.absent.Get(version); absent {
			return false, nil
		}
		if c.lookups.Allow() {
			late = nil
			if stored, err := c.getConfiguration(ctx, key); err == nil && (stored == nil || stored.UID != uid) {
				c.absent.Add(version, nil, absentAge)
				return false, nil
			}
		}
		select {
		case <-changed:
		case <-time.After(configurationPollInterval):
		case <-expired:
			return late == nil, late // its Instances are reconciled when the watch delivers it
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// UpdateStatus writes the status of the Configuration if it has not changed since it was read.
func (c *Cluster) UpdateStatus(ctx context.Context, configuration *akriv0.Configuration) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := c.configurationClient.In(configuration.Namespace).UpdateStatus(ctx, configuration, metav1.UpdateOptions{})
	c.countWrite("status", err)
	if err != nil {
		return fmt.Errorf("update Configuration status: %w", err)
	}
	return nil
}

// Event is an Event of a Configuration.
type Event struct {
	Type, Reason, Message string
	// Devices are the names of the Instances that the message names.
	Devices []string
}

// CreateEvent creates an Event for the Configuration.
func (c *Cluster) CreateEvent(ctx context.Context, configuration *akriv0.Configuration, e Event) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	now := metav1.Now()
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: configuration.Name + ".", Namespace: configuration.Namespace},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: akriv0.GroupVersion.String(), Kind: "Configuration", Namespace: configuration.Namespace,
			Name: configuration.Name, UID: configuration.UID, ResourceVersion: configuration.ResourceVersion,
		},
		Type: e.Type, Reason: e.Reason, Message: e.Message, Source: corev1.EventSource{Component: "akri-instance-writer"},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	if len(e.Devices) > 0 {
		event.Annotations = map[string]string{akriv0.DevicesAnnotation: strings.Join(e.Devices, ",")}
	}
	_, err := c.eventClient.In(configuration.Namespace).Create(ctx, event, metav1.CreateOptions{})
	c.countWrite("event", err)
	if err != nil {
		return fmt.Errorf("create Event: %w", err)
	}
	return nil
}
