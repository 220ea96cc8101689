// Package decision decides how Pods get devices, once for a cluster, and records it.
package decision

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/dra-controller/internal/desired"
)

// Answer is what an API server has answered.
type Answer struct {
	// Server is its address.
	Server   string
	Features desired.Features
	Err      error
}

// Input is what the decision depends on.
type Input struct {
	Instances []*akriv0.Instance
	// Nodes by name.
	Nodes map[string]*corev1.Node
	// Answers are those of all API servers.
	Answers []Answer
	// Over means that the wait for equal answers is over.
	Over bool
}

// Decision is how Pods get devices, and why.
type Decision struct {
	// Resources is empty if nothing can be decided yet.
	Resources string
	// Reason is one of those of akriv0.
	Reason  string
	Message string
}

// Decide returns the decision. An installation that exists keeps how Pods get devices. Otherwise
// all API servers must have the same features, because each of them may get the next request.
func Decide(in Input) Decision {
	if len(in.Instances) > 0 {
		return keep(in)
	}
	if difference := difference(in.Answers); difference != "" {
		if in.Over {
			return Decision{akriv0.ResourcesDevicePlugin, akriv0.ResourcesServersDiffer, difference}
		}
		return Decision{Message: difference}
	}
	if missing := in.Answers[0].Features.Missing(); len(missing) > 0 {
		message := "the API servers do not have: " + strings.Join(missing, ", ")
		return Decision{akriv0.ResourcesDevicePlugin, akriv0.ResourcesFeaturesMissing, message}
	}
	return Decision{akriv0.ResourcesDRA, akriv0.ResourcesFeaturesComplete, "the API servers have what Dynamic Resource Allocation needs"}
}

// keep returns how Pods get the devices of the Instances that exist. No Instance is created without
// a record, so that they are those of an earlier installation. Nodes with the label do not count.
func keep(in Input) Decision {
	plugins, claims := 0, 0
	for _, instance := range in.Instances {
		for _, value := range instance.Spec.DeviceUsage {
			holder, err := akriv0.ParseSlotHolder(value)
			node := in.Nodes[holder.Node]
			switch {
			case err != nil || node == nil || akriv0.ResourcesOf(node, "") != "":
			case holder.Claim != "":
				claims++
			default:
				plugins++
			}
		}
	}
	kept := akriv0.ResourcesDevicePlugin
	if claims > 0 && plugins == 0 {
		kept = akriv0.ResourcesDRA
	}
	return Decision{kept, akriv0.ResourcesInstancesExist, fmt.Sprintf(
		"%d Instances exist; device plugins hold %d of their slots, and ResourceClaims %d", len(in.Instances), plugins, claims)}
}

// difference describes the answers if one is missing, or if they are not equal. Otherwise it is
// empty.
func difference(answers []Answer) string {
	if len(answers) == 0 {
		return "the Service kubernetes has no API servers"
	}
	isOther := func(answer Answer) bool { return answer.Err != nil || answer.Features != answers[0].Features }
	if !slices.ContainsFunc(answers, isOther) {
		return ""
	}

	var texts []string
	for _, answer := range answers {
		missing := answer.Features.Missing()
		switch {
		case answer.Err != nil:
			texts = append(texts, fmt.Sprintf("%s does not answer (%v)", answer.Server, answer.Err))
		case len(missing) > 0:
			texts = append(texts, answer.Server+" does not have: "+strings.Join(missing, ", "))
		default:
			texts = append(texts, answer.Server+" has all features")
		}
	}
	slices.Sort(texts)
	return strings.Join(slices.Compact(texts), "; ")
}

// data returns the data of the ConfigMap.
func (d Decision) data(by string, at time.Time) map[string]string {
	return map[string]string{
		akriv0.ResourcesKey: d.Resources, akriv0.ResourcesReasonKey: d.Reason, akriv0.ResourcesMessageKey: d.Message,
		akriv0.ResourcesDecidedAtKey: at.UTC().Format(time.RFC3339), akriv0.ResourcesDecidedByKey: by,
	}
}
