package try

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"akri.sh/libs/trial"
)

// maxGroups is the number of groups of all nodes that are shown.
const maxGroups = 5

// AllClosest returns the groups of Closest for the request. Nodes without a result when ctx ends
// are left out.
func AllClosest(ctx context.Context, exec Exec, pods []corev1.Pod, request trial.Request) []trial.Group {
	request.OnlyClosest = true
	results, err := masked(each(ctx, exec, pods, request, func(string) {}))
	if err != nil {
		return nil
	}
	return Closest(results)
}

// Closest returns the devices of all nodes that come close to matching: the closest first, and one
// group for devices of one kind on several nodes.
func Closest(results []trial.Result) []trial.Group {
	var merged []trial.Group
	for _, result := range results {
		for _, group := range result.Groups {
			group.Devices = slices.Clone(group.Devices)
			for i := range group.Devices {
				group.Devices[i].Nodes = []string{result.Node}
			}
			if i := slices.IndexFunc(merged, group.Same); i >= 0 {
				merged[i].Merge(group)
			} else {
				merged = append(merged, group)
			}
		}
	}
	withdraw(merged)
	slices.SortStableFunc(merged, trial.Group.Compare)
	return merged[:min(len(merged), maxGroups)]
}

// withdraw removes corrections that match devices of several kinds. Each node has checked a
// correction with its own devices only.
func withdraw(groups []trial.Group) {
	kinds := map[string]string{}
	several := map[string]bool{}
	for _, group := range groups {
		kind, exists := kinds[group.CorrectedDetails]
		several[group.CorrectedDetails] = several[group.CorrectedDetails] || exists && kind != group.Kind
		kinds[group.CorrectedDetails] = group.Kind
	}
	for i := range groups {
		if several[groups[i].CorrectedDetails] {
			groups[i].CorrectedDetails = ""
		}
	}
}
