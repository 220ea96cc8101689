package cleanup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

// named is how many of the objects that are left an error names.
const named = 10

// writersOf selects the pods of a release that write to the API server.
func writersOf(release string) string {
	return "app.kubernetes.io/part-of=akri,app.kubernetes.io/component in (instance-writer,broker-controller),app.kubernetes.io/instance=" + release
}

// othersOf selects the pods of other releases that own Instances; `agent` is that of Akri before
// this project.
func othersOf(release string) string {
	return "app.kubernetes.io/part-of=akri,app.kubernetes.io/component in (instance-writer,agent),app.kubernetes.io/instance!=" + release
}

// removeAll looks and removes until a look finds nothing.
func (s *Service) removeAll(ctx context.Context) error {
	var left []object
	var last error
	deleted := map[types.UID]bool{}
	err := wait.PollUntilContextCancel(ctx, lookEvery, true, func(ctx context.Context) (bool, error) {
		left, last = s.removeOnce(ctx, deleted)
		return len(left) == 0 && last == nil, nil
	})
	if err != nil {
		return errors.Join(fmt.Errorf("remove what Akri made: %w; left: %s", err, summary(left)), last)
	}
	s.log.Info("nothing is left of what Akri made", zap.Int("removed", len(deleted)))
	return nil
}

// removeOnce removes what a look finds, and returns it. Objects that it sees for the first time are
// logged.
func (s *Service) removeOnce(ctx context.Context, deleted map[types.UID]bool) ([]object, error) {
	var found []object
	var problems []error
	for _, k := range kinds {
		objects, err := s.objects.list(ctx, k, k.made)
		problems = append(problems, err)
		found = append(found, objects...)
		for _, object := range objects {
			if err := s.objects.remove(ctx, object); err != nil {
				problems = append(problems, err)
				continue
			}
			if !deleted[object.metadata.UID] {
				deleted[object.metadata.UID] = true
				s.log.Info("removed", zap.Stringer("object", object))
			}
		}
	}
	return found, errors.Join(problems...)
}

// tidyConfigurations takes Akri's finalizers and its status off Configurations: nobody keeps them
// true any more.
func (s *Service) tidyConfigurations(ctx context.Context) error {
	list, err := s.objects.configurations.In(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list configurations: %w", err)
	}
	for i := range list.Items {
		c := &list.Items[i]
		calls := s.objects.configurations.In(c.Namespace)
		_, err := calls.Patch(ctx, c.Name, types.MergePatchType, []byte(`{"status":null}`), metav1.PatchOptions{}, "status")
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("clear status of Configuration %s/%s: %w", c.Namespace, c.Name, err)
		}
		c.ResourceVersion = "" // that of before the status was cleared
		patch, needed := withoutFinalizers(c)
		if !needed {
			continue
		}
		if _, err := calls.Patch(ctx, c.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("take finalizers off Configuration %s/%s: %w", c.Namespace, c.Name, err)
		}
		s.log.Info("took finalizers off", zap.String("configuration", c.Namespace+"/"+c.Name))
	}
	return nil
}

// withoutFinalizers is the merge patch that leaves only the finalizers that are not Akri's, and
// whether it is needed. Akri's are bare node names; all others have a domain, save those of the
// garbage collector.
func withoutFinalizers(object metav1.Object) ([]byte, bool) {
	kept := slices.DeleteFunc(slices.Clone(object.GetFinalizers()), func(name string) bool {
		return !strings.Contains(name, "/") && name != metav1.FinalizerDeleteDependents && name != metav1.FinalizerOrphanDependents
	})
	if len(kept) == len(object.GetFinalizers()) {
		return nil, false
	}
	metadata := map[string]any{"finalizers": kept}
	if version := object.GetResourceVersion(); version != "" {
		metadata["resourceVersion"] = version // somebody else may just be changing the list
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		panic(err) // strings always encode
	}
	return patch, true
}

func summary(left []object) string {
	names := make([]string, 0, named)
	for _, object := range left[:min(named, len(left))] {
		names = append(names, object.String())
	}
	if more := len(left) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
