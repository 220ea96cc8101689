package discovery

import (
	"cmp"
	"context"
	"strings"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"akri.sh/libs/rpc"
	"akri.sh/libs/trial"
	handlerv1 "akri.sh/proto/akri/handler/v1"
)

// Limits of an explanation, which a handler may not keep.
const (
	maxGroups        = 5
	maxConditions    = 20
	maxExamples      = 3
	maxTextLength    = 256      // characters
	maxDetailsLength = 16 << 10 // bytes
)

// Closest returns the devices of a handler's endpoint that come close to matching. It returns none
// if the handler does not explain, or not until ctx ends.
func Closest(ctx context.Context, target Target, details string) []trial.Group {
	conn, err := rpc.Dial(target.address(), prometheus.NewRegistry(), append(target.options(), rpc.WithoutKeepalive())...)
	if err != nil {
		return nil
	}
	defer conn.Close()
	response, err := handlerv1.NewExplainServiceClient(conn).Explain(ctx, &handlerv1.ExplainRequest{DiscoveryDetails: details},
		grpc.MaxCallRecvMsgSize(maxTrialBytes))
	if err != nil {
		return nil
	}
	var groups []trial.Group
	for _, miss := range first(response.GetClosest(), maxGroups) {
		groups = append(groups, groupOf(miss))
	}
	return groups
}

func groupOf(miss *handlerv1.NearMiss) trial.Group {
	group := trial.Group{Kind: clip(miss.GetKind()), Distance: int(miss.GetDistance()), Devices: []trial.Devices{devicesOf(miss)}}
	for _, condition := range first(miss.GetMet(), maxConditions) {
		group.Met = append(group.Met, clip(condition))
	}
	for _, mismatch := range first(miss.GetMismatches(), maxConditions) {
		group.Mismatches = append(group.Mismatches, mismatchOf(mismatch))
	}
	if len(group.Mismatches) == 0 { // a handler without the field
		old := &handlerv1.Mismatch{Condition: miss.GetMissed()}
		if miss.Value != nil {
			old.Found = []string{miss.GetValue()}
		}
		group.Mismatches = []trial.Mismatch{mismatchOf(old)}
	}
	if details := miss.GetCorrectedDetails(); len(details) <= maxDetailsLength && !strings.ContainsFunc(details, isHidden) {
		group.CorrectedDetails = details
	}
	return group
}

func devicesOf(miss *handlerv1.NearMiss) trial.Devices {
	devices := trial.Devices{First: clip(miss.GetDevice()), Count: int(max(miss.GetCount(), 1))}
	for _, series := range first(miss.GetSeries(), maxExamples) {
		devices.Series = append(devices.Series, trial.Series{
			First: clip(series.GetFirst()), Last: clip(series.GetLast()), Count: int(cmp.Or(series.GetCount(), 1)),
		})
	}
	if len(devices.Series) == 0 {
		devices.Series = []trial.Series{{First: devices.First, Count: 1}}
	}
	return devices
}

func mismatchOf(mismatch *handlerv1.Mismatch) trial.Mismatch {
	result := trial.Mismatch{Condition: clip(mismatch.GetCondition()), Wanted: clip(mismatch.GetWanted())}
	for _, value := range first(mismatch.GetFound(), maxExamples) {
		result.Found = append(result.Found, clip(value))
	}
	return result
}

func first[T any](list []T, maximum int) []T { return list[:min(len(list), maximum)] }

// clip limits a text, and replaces characters that change what a terminal shows.
func clip(text string) string {
	characters := first([]rune(text), maxTextLength)
	for i, r := range characters {
		if !unicode.IsPrint(r) {
			characters[i] = '?'
		}
	}
	return string(characters)
}

func isHidden(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' }
