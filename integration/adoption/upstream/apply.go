package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// applier writes as upstream's agent does: with server-side apply and without force. A field that
// another field manager owns with another value is a conflict, by which two agents find that they
// reserve the same slot. Each kind of write has its own field manager.
type applier struct {
	node   string
	client dynamic.Interface
}

// applyInstance applies the Instance of a device, with the node as the field manager. Other nodes
// apply the same Instance with their own names in nodes, which is a set. deviceUsage is present and
// empty.
func (a applier) applyInstance(ctx context.Context, owner *akriv0.Configuration, d device) error {
	name := akriv0.InstanceName(owner.Name, d.digest(a.node))
	spec := map[string]any{
		"configurationName": owner.Name,
		"cdiName":           akriv0.CDIName(owner.Name, d.digest(a.node)),
		"capacity":          int64(owner.Spec.CapacityOrDefault()),
		"brokerProperties":  fields(d.environment(owner.Spec.BrokerProperties)),
		"shared":            d.shared,
		"nodes":             []any{a.node},
		"deviceUsage":       map[string]any{},
	}
	o := object(gvk("Instance"), name, spec)
	o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, gvk("Configuration"))})
	return a.apply(ctx, akriv0.InstanceResource, owner.Namespace, a.node, o)
}

// leave removes the node from an Instance that other nodes also see.
func (a applier) leave(ctx context.Context, instance *akriv0.Instance) error {
	spec := map[string]any{
		"configurationName": instance.Spec.ConfigurationName,
		"cdiName":           instance.Spec.CDIName,
		"capacity":          int64(instance.Spec.Capacity),
		"brokerProperties":  fields(instance.Spec.BrokerProperties),
		"shared":            instance.Spec.Shared,
		"nodes":             []any{},
		"deviceUsage":       fields(instance.Spec.DeviceUsage),
	}
	return a.apply(ctx, akriv0.InstanceResource, instance.Namespace, a.node, object(gvk("Instance"), instance.Name, spec))
}

// slots applies all slots that the node holds, with the field manager dp-<node>. A slot that is
// missing is thereby released.
func (a applier) slots(ctx context.Context, namespace, instance string, held map[string]string) error {
	spec := map[string]any{"deviceUsage": fields(held)}
	return a.apply(ctx, akriv0.InstanceResource, namespace, "dp-"+a.node, object(gvk("Instance"), instance, spec))
}

// finalizer applies the finalizer of the node, which is its name, with the field manager
// <node>-fin.
func (a applier) finalizer(ctx context.Context, resource schema.GroupVersionResource, kind, namespace, name string) error {
	o := object(gvk(kind), name, nil)
	o.SetFinalizers([]string{a.node})
	return a.apply(ctx, resource, namespace, a.node+"-fin", o)
}

// withoutFinalizer removes the finalizer of the node.
func (a applier) withoutFinalizer(ctx context.Context, resource schema.GroupVersionResource, kind, namespace, name string) error {
	return a.apply(ctx, resource, namespace, a.node+"-fin", object(gvk(kind), name, nil))
}

func (a applier) apply(ctx context.Context, resource schema.GroupVersionResource, namespace, manager string, o *unstructured.Unstructured) error {
	text, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("encode %s: %w", o.GetName(), err)
	}
	_, err = a.client.Resource(resource).Namespace(namespace).
		Patch(ctx, o.GetName(), types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: manager})
	if err != nil {
		return fmt.Errorf("apply %s %s as %s: %w", o.GetKind(), o.GetName(), manager, err)
	}
	return nil
}

func object(kind schema.GroupVersionKind, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(kind)
	o.SetName(name)
	if spec != nil {
		o.Object["spec"] = spec
	}
	return o
}

// fields returns the map in the form of unstructured objects.
func fields(from map[string]string) map[string]any {
	into := map[string]any{}
	for key, value := range maps.All(from) {
		into[key] = value
	}
	return into
}
