package decision_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/dra-controller/internal/decision"
	"akri.sh/services/dra-controller/internal/desired"
)

const devicePlugin, dra = akriv0.ResourcesDevicePlugin, akriv0.ResourcesDRA

var (
	all  = desired.Features{ConsumableCapacity: true, ExtendedResources: true, Taints: true}
	some = desired.Features{ConsumableCapacity: true, Taints: true}
	none = desired.Features{}
)

// instance returns an Instance with the holders of its slots.
func instance(holders ...string) *akriv0.Instance {
	instance := &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Name: "camera-8120fe"}, Spec: akriv0.InstanceSpec{DeviceUsage: map[string]string{}}}
	for i, holder := range holders {
		instance.Spec.DeviceUsage[akriv0.SlotName(instance.Name, i)] = holder
	}
	return instance
}

// nodes are a, and others with the label.
func nodes() map[string]*corev1.Node {
	nodes := map[string]*corev1.Node{}
	for name, label := range map[string]string{"a": "", "b": "", "plugins": devicePlugin, "claims": dra} {
		nodes[name] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{akriv0.ResourcesLabel: label}}}
	}
	return nodes
}

func answers(features ...desired.Features) (answers []decision.Answer) {
	for i, features := range features {
		answers = append(answers, decision.Answer{Server: string(rune('1' + i)), Features: features})
	}
	return answers
}

func TestDecide(t *testing.T) {
	silent := decision.Answer{Server: "0", Err: errors.New("timeout")}
	for name, c := range map[string]struct {
		in                         decision.Input
		resources, reason, message string
	}{
		"no server is known":               {decision.Input{}, "", "", "the Service kubernetes has no API servers"},
		"one server with all features":     {decision.Input{Answers: answers(all)}, dra, akriv0.ResourcesFeaturesComplete, "the API servers have what"},
		"all servers have all features":    {decision.Input{Answers: answers(all, all, all)}, dra, akriv0.ResourcesFeaturesComplete, ""},
		"the wait is over when they agree": {decision.Input{Answers: answers(all, all), Over: true}, dra, akriv0.ResourcesFeaturesComplete, ""},
		"no server has a feature": {
			decision.Input{Answers: answers(some, some)}, devicePlugin, akriv0.ResourcesFeaturesMissing, "the API servers do not have: extended resources",
		},
		"no server serves the API": {
			decision.Input{Answers: answers(none)}, devicePlugin, akriv0.ResourcesFeaturesMissing,
			"the API servers do not have: consumable capacity, extended resources, device taints",
		},
		"the servers differ":             {decision.Input{Answers: answers(all, some)}, "", "", "1 has all features; 2 does not have: extended resources"},
		"all differ, and each lacks one": {decision.Input{Answers: answers(none, some)}, "", "", "1 does not have"},
		"a server does not answer": {
			decision.Input{Answers: append(answers(all, all), silent)}, "", "", "0 does not answer (timeout); 1 has all features; 2 has all features",
		},
		"the servers differ for too long": {
			decision.Input{Answers: answers(all, some), Over: true}, devicePlugin, akriv0.ResourcesServersDiffer, "1 has all features; 2",
		},
		"a server does not answer for too long": {
			decision.Input{Answers: []decision.Answer{silent}, Over: true}, devicePlugin, akriv0.ResourcesServersDiffer, "0 does not answer",
		},

		"an Instance exists": {
			decision.Input{Instances: []*akriv0.Instance{instance("", "")}, Answers: answers(all)}, devicePlugin, akriv0.ResourcesInstancesExist,
			"1 Instances exist; device plugins hold 0 of their slots, and ResourceClaims 0",
		},
		"device plugins hold slots": {
			decision.Input{Instances: []*akriv0.Instance{instance("a", "C:0:b")}}, devicePlugin, akriv0.ResourcesInstancesExist, "device plugins hold 2",
		},
		"claims hold slots": {
			decision.Input{Instances: []*akriv0.Instance{instance("D:uid:a"), instance("", "D:uid:b")}}, dra, akriv0.ResourcesInstancesExist, "and ResourceClaims 2",
		},
		"both hold slots": {
			decision.Input{Instances: []*akriv0.Instance{instance("D:uid:a", "b")}}, devicePlugin, akriv0.ResourcesInstancesExist, "",
		},
		"a node with the label keeps device plugins": {
			decision.Input{Instances: []*akriv0.Instance{instance("D:uid:a", "plugins")}}, dra, akriv0.ResourcesInstancesExist, "hold 0 of",
		},
		"only a node with the label has claims": {
			decision.Input{Instances: []*akriv0.Instance{instance("D:uid:claims")}}, devicePlugin, akriv0.ResourcesInstancesExist, "ResourceClaims 0",
		},
		"slots of a node that does not exist, and malformed ones": {
			decision.Input{Instances: []*akriv0.Instance{instance("D:uid:gone", "x:y", "D:uid:a")}}, dra, akriv0.ResourcesInstancesExist, "ResourceClaims 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.in.Nodes = nodes()
			got := decision.Decide(c.in)
			require.Equal(t, c.resources, got.Resources)
			require.Equal(t, c.reason, got.Reason)
			require.Contains(t, got.Message, c.message)
		})
	}
}

// Whatever the answers are: they count only without Instances; Dynamic Resource Allocation is
// decided only if each server has all features; nothing stays undecided after the wait; and the
// order of the answers makes no difference.
func TestDecideProperty(t *testing.T) {
	holders := rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "b", "D:uid:a", "D:uid:b", "plugins", "D:uid:claims", "gone", "x:y"}), 0, 4)
	rapid.Check(t, func(t *rapid.T) {
		in := decision.Input{Nodes: nodes(), Over: rapid.Bool().Draw(t, "over")}
		for range rapid.IntRange(0, 2).Draw(t, "instances") {
			in.Instances = append(in.Instances, instance(holders.Draw(t, "holders")...))
		}
		in.Answers = answers(rapid.SliceOfN(rapid.SampledFrom([]desired.Features{all, some, none}), 0, 3).Draw(t, "features")...)
		for i := range in.Answers {
			if rapid.Bool().Draw(t, "silent") {
				in.Answers[i] = decision.Answer{Server: in.Answers[i].Server, Err: errors.New("timeout")}
			}
		}
		got := decision.Decide(in)

		complete := func(answer decision.Answer) bool { return answer.Err == nil && answer.Features == all }
		isComplete := len(in.Answers) > 0 && !slices.ContainsFunc(in.Answers, func(answer decision.Answer) bool { return !complete(answer) })
		switch {
		case len(in.Instances) > 0:
			without := in
			without.Answers = nil
			require.Equal(t, decision.Decide(without), got)
			require.NotEmpty(t, got.Resources)
		case got.Resources == dra:
			require.True(t, isComplete)
		case got.Resources == "":
			require.False(t, in.Over)
			require.False(t, isComplete)
		default:
			require.Equal(t, devicePlugin, got.Resources)
			require.False(t, isComplete)
		}
		require.NotEmpty(t, got.Message)

		slices.Reverse(in.Answers)
		require.Equal(t, got, decision.Decide(in))
	})
}
