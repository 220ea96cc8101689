package handler

import (
	"cmp"
	"slices"

	"akri.sh/libs/typo"
)

// Join returns the groups of an explanation for near misses of one device each: the closest first,
// and one group for devices of a kind that meet the same conditions, and that the same details
// would match. If a mistake explains the closest device, devices that are farther away are left
// out. The distances are weights of the package typo.
func Join(misses []*NearMiss) []*NearMiss {
	misses = slices.SortedFunc(slices.Values(misses), func(a, b *NearMiss) int {
		return cmp.Or(
			cmp.Compare(len(a.GetMismatches()), len(b.GetMismatches())), cmp.Compare(a.GetDistance(), b.GetDistance()),
			cmp.Compare(a.GetDevice(), b.GetDevice()),
		)
	})

	var groups []*NearMiss
	for _, miss := range misses {
		if first := misses[0]; first.GetDistance() < typo.Far && !asClose(miss, first) {
			continue
		}
		if i := slices.IndexFunc(groups, func(group *NearMiss) bool { return alike(group, miss) }); i >= 0 {
			add(groups[i], miss)
		} else if len(groups) < MaxNearMisses {
			miss.Count, miss.Series = 1, []*Series{{First: miss.GetDevice(), Count: 1}}
			groups = append(groups, miss)
		}
	}
	return groups
}

// asClose reports whether a device is about as close as the closest one.
func asClose(miss, closest *NearMiss) bool {
	return len(miss.GetMismatches()) == len(closest.GetMismatches()) && miss.GetDistance() <= closest.GetDistance()+1
}

func alike(a, b *NearMiss) bool {
	return a.GetKind() == b.GetKind() && a.GetCorrectedDetails() == b.GetCorrectedDetails() && slices.Equal(a.GetMet(), b.GetMet()) &&
		slices.EqualFunc(a.GetMismatches(), b.GetMismatches(), func(a, b *Mismatch) bool {
			return a.GetCondition() == b.GetCondition() && (len(a.GetFound()) == 0) == (len(b.GetFound()) == 0)
		})
}

// add adds a device to a group.
func add(group, miss *NearMiss) {
	group.Count++
	if len(group.GetSeries()) < MaxExamples {
		group.Series = append(group.Series, &Series{First: miss.GetDevice(), Count: 1})
	}
	for i, mismatch := range group.GetMismatches() {
		for _, value := range miss.GetMismatches()[i].GetFound() {
			if len(mismatch.GetFound()) < MaxExamples && !slices.Contains(mismatch.GetFound(), value) {
				mismatch.Found = append(mismatch.Found, value)
			}
		}
	}
}
