package explain

import (
	"fmt"
	"strings"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// ResourceUnknown means that no Configuration and no Instance has the name of the resource. No rule
// finds it: nothing else can be examined then.
const ResourceUnknown CauseID = "ResourceUnknown"

func resourceUnknown(s *Snapshot, name string) Cause {
	var names []string
	for i := range s.Configurations {
		names = append(names, s.Configurations[i].Name)
	}
	for i := range s.Instances {
		names = append(names, s.Instances[i].Name)
	}

	cause := Cause{
		ID:      ResourceUnknown,
		Message: fmt.Sprintf("no Configuration and no Instance is named %q, so no node has %s", name, akriv0.ResourceName(name)),
	}
	if similar := nearest(name, names); similar != "" {
		cause.Message += fmt.Sprintf("; the nearest name is %s", akriv0.ResourceName(similar))
	}
	cause.Remedies = []Remedy{
		remedy("Name an existing resource in the limits or the claim of the Pod, and create it again.", "kubectl akri devices --all-namespaces"),
	}
	return cause
}

// nearest returns the name that differs the least from the given one, or nothing if all differ in
// more than a third of its characters.
func nearest(name string, names []string) string {
	best, distance := "", len(name)/3+1
	for _, candidate := range names {
		if d := editDistance(strings.ToLower(name), strings.ToLower(candidate)); d < distance {
			best, distance = candidate, d
		}
	}
	return best
}

// editDistance is the number of characters to insert, remove, replace or swap with the next one.
func editDistance(a, b string) int {
	table := make([][]int, len(a)+1)
	for i := range table {
		table[i] = make([]int, len(b)+1)
		table[i][0] = i
	}
	for j := range table[0] {
		table[0][j] = j
	}

	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}

			table[i][j] = min(table[i-1][j]+1, table[i][j-1]+1, table[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				table[i][j] = min(table[i][j], table[i-2][j-2]+1)
			}
		}
	}
	return table[len(a)][len(b)]
}
