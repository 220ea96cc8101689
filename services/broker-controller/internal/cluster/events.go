package cluster

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

const (
	component    = "akri-broker-controller"
	eventTimeout = 5 * time.Second
)

// NewRecorder returns a recorder that writes Events in the background. client-go counts repeated
// Events in one object and limits their rate. stop drops the Events that are not written yet.
func NewRecorder(config *rest.Config) (recorder record.EventRecorder, stop func(), err error) {
	config = rest.CopyConfig(config)
	config.Timeout = eventTimeout
	client, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("create client for events: %w", err)
	}
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.Events(metav1.NamespaceAll)})
	return escaping{broadcaster.NewRecorder(nil, corev1.EventSource{Component: component})}, broadcaster.Shutdown, nil
}

// escaping escapes messages, which can have text of a kubelet: users read them on terminals.
type escaping struct{ recorder record.EventRecorder }

// Event implements record.EventRecorder.
func (e escaping) Event(object runtime.Object, eventType, reason, message string) {
	e.recorder.Event(object, eventType, reason, akriv0.Escape(message))
}

// Eventf implements record.EventRecorder.
func (e escaping) Eventf(object runtime.Object, eventType, reason, format string, arguments ...any) {
	e.Event(object, eventType, reason, fmt.Sprintf(format, arguments...))
}

// AnnotatedEventf implements record.EventRecorder.
func (e escaping) AnnotatedEventf(
	object runtime.Object, annotations map[string]string, eventType, reason, format string, arguments ...any,
) {
	e.recorder.AnnotatedEventf(object, annotations, eventType, reason, "%s", akriv0.Escape(fmt.Sprintf(format, arguments...)))
}

// Reference returns the reference of an Instance or a Configuration for Events.
func Reference(kind string, object metav1.Object) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: akriv0.GroupVersion.String(), Kind: kind,
		Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
	}
}
