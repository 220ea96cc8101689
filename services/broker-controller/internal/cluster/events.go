package cluster

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

const (
	component    = "akri-broker-controller"
	eventTimeout = 5 * time.Second
)

// Recorder writes Events in the background. Repeated ones are counted in one Event, and more than
// the API server should bear are dropped.
type Recorder struct {
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
}

// NewRecorder returns a Recorder to be stopped in the end.
func NewRecorder(clients Clients) Recorder {
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(eventSink{clients})
	return Recorder{broadcaster, broadcaster.NewRecorder(nil, corev1.EventSource{Component: component})}
}

// Normal says what was done about an object.
func (r Recorder) Normal(about *corev1.ObjectReference, reason, message string) {
	r.recorder.Event(about, corev1.EventTypeNormal, reason, message)
}

// Warning says what could not be done about an object.
func (r Recorder) Warning(about *corev1.ObjectReference, reason, message string) {
	r.recorder.Event(about, corev1.EventTypeWarning, reason, message)
}

// Stop drops what has not been written yet.
func (r Recorder) Stop() { r.broadcaster.Shutdown() }

// InstanceReference is an Instance as an Event names it.
func InstanceReference(instance *akriv0.Instance) *corev1.ObjectReference {
	return reference("Instance", instance)
}

// ConfigurationReference is a Configuration as an Event names it.
func ConfigurationReference(configuration *akriv0.Configuration) *corev1.ObjectReference {
	return reference("Configuration", configuration)
}

func reference(kind string, object metav1.Object) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: akriv0.GroupVersion.String(), Kind: kind,
		Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
	}
}

// eventSink is where client-go's recorder writes to. Its interface has no context, so each call
// makes its own.
type eventSink struct{ clients Clients }

func (s eventSink) Create(event *corev1.Event) (*corev1.Event, error) {
	ctx, cancel := context.WithTimeout(context.Background(), eventTimeout)
	defer cancel()
	return s.clients.Events.In(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
}

func (s eventSink) Update(event *corev1.Event) (*corev1.Event, error) {
	ctx, cancel := context.WithTimeout(context.Background(), eventTimeout)
	defer cancel()
	return s.clients.Events.In(event.Namespace).Update(ctx, event, metav1.UpdateOptions{})
}

func (s eventSink) Patch(event *corev1.Event, data []byte) (*corev1.Event, error) {
	ctx, cancel := context.WithTimeout(context.Background(), eventTimeout)
	defer cancel()
	return s.clients.Events.In(event.Namespace).Patch(ctx, event.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{})
}
