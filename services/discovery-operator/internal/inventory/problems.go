package inventory

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/util/duration"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/grace"
	instancev1 "akri.sh/proto/akri/instance/v1"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
)

func handlerStates(sources []Source) []*instancev1.HandlerState {
	var states []*instancev1.HandlerState
	for _, source := range sources {
		states = append(states, &instancev1.HandlerState{
			Name: source.Handler.GetName(), Endpoint: source.Handler.GetEndpoint(),
			Status: string(handlerState(source.Handler.GetStatus())), OfflineSince: source.Handler.GetOfflineSince(),
		})
	}
	return states
}

func handlerState(status registrarv1.HandlerStatus) akriv0.HandlerState {
	switch status {
	case registrarv1.HandlerStatus_HANDLER_STATUS_ACTIVE:
		return akriv0.HandlerActive
	case registrarv1.HandlerStatus_HANDLER_STATUS_OFFLINE:
		return akriv0.HandlerOffline
	default:
		return akriv0.HandlerWaiting
	}
}

func problems(input Input) []*instancev1.Problem {
	var all []*instancev1.Problem
	if input.HandlersSynced && len(input.Sources) == 0 {
		all = append(all, notRegistered(input))
	}
	for _, source := range input.Sources {
		if handlerState(source.Handler.GetStatus()) == akriv0.HandlerOffline {
			all = append(all, offline(input, source.Handler))
		}
		all = append(all, source.Problems...)
	}
	all = append(all, refusedProperties(input)...)
	return append(all, input.Configuration.GetRequest().GetProblems()...)
}

// refusedProperties returns a problem for each of the brokerProperties that containers do not get.
// The devices stay, with the other properties.
func refusedProperties(input Input) []*instancev1.Problem {
	var all []*instancev1.Problem
	properties := input.Configuration.GetRequest().GetBrokerProperties()
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if err := input.Policy.checkProperty(name, properties[name]); err != nil && len(all) < maxProblems {
			message := fmt.Sprintf("spec.brokerProperties[%.100s]: %v; containers do not get it", name, err)
			all = append(all, &instancev1.Problem{Reason: akriv0.ReasonInvalidDevice, Message: message})
		}
	}
	return all
}

// Reachable is what is awaited of a handler that is offline.
const Reachable = "the Discovery Handler can be reached"

// HandlerWait returns how long the devices of a handler are kept.
func HandlerWait(awaited string, since time.Time, period time.Duration) grace.Wait {
	return grace.Wait{Awaited: awaited, Since: since, For: period, Then: "its devices are removed"}
}

// waitMessage must return the same times while the state lasts: each report that differs from the
// last one is sent.
func waitMessage(wait *grace.Wait) *instancev1.Wait {
	if wait == nil {
		return nil
	}
	return &instancev1.Wait{
		Awaited: wait.Awaited, Since: timestamppb.New(wait.Since), Until: timestamppb.New(wait.Until()), Then: wait.Then,
	}
}

func offline(input Input, handler *registrarv1.Handler) *instancev1.Problem {
	wait := HandlerWait(Reachable, handler.GetOfflineSince().AsTime(), input.Grace)
	if handler.GetOfflineCause() == registrarv1.OfflineCause_OFFLINE_CAUSE_SOCKET_MISSING {
		return socketMissing(handler, wait)
	}
	return &instancev1.Problem{
		Reason: akriv0.ReasonHandlerOffline,
		Message: fmt.Sprintf("Discovery Handler %q at %s on node %q cannot be reached; check that it is running; "+
			"%s when it has been offline for %s",
			handler.GetName(), handler.GetEndpoint(), input.Node, wait.Then, duration.HumanDuration(wait.For)),
		Subject: &instancev1.Subject{Kind: akriv0.SubjectHandler, Name: handler.GetName()},
		Wait:    waitMessage(&wait),
	}
}

// socketMissing is the problem of a handler that must create its socket again. Streams that were
// opened before stay open if the handler still runs.
func socketMissing(handler *registrarv1.Handler, wait grace.Wait) *instancev1.Problem {
	wait.Then += ", unless it still sends them on a connection that is open"
	return &instancev1.Problem{
		Reason: akriv0.ReasonHandlerSocketMissing,
		Message: fmt.Sprintf("the socket %s of Discovery Handler %q does not exist; restart the Pod of the handler, which creates it again; "+
			"when the handler has been offline for %s, %s",
			handler.GetEndpoint(), handler.GetName(), duration.HumanDuration(wait.For), wait.Then),
		Subject:  &instancev1.Subject{Kind: akriv0.SubjectHandler, Name: handler.GetName()},
		Evidence: []string{handler.GetEndpoint()}, Wait: waitMessage(&wait),
	}
}

func notRegistered(input Input) *instancev1.Problem {
	names := slices.Compact(slices.Sorted(slices.Values(input.Registered)))
	registered := "none"
	if len(names) > 0 {
		registered = strings.Join(names, ", ")
	}
	name := input.Configuration.GetHandler()

	return &instancev1.Problem{
		Reason:  akriv0.ReasonHandlerNotRegistered,
		Message: fmt.Sprintf("no Discovery Handler named %q is registered on node %q; registered: %s", name, input.Node, registered),
		Subject: &instancev1.Subject{Kind: akriv0.SubjectHandler, Name: name}, Evidence: names,
		Wait: waitMessage(input.Unregistered),
	}
}

// nameTaken does not say who has the name: that is for administrators, who can read the record.
func nameTaken() *instancev1.Problem {
	return &instancev1.Problem{
		Reason: akriv0.ReasonNameTaken,
		Message: "the name belongs to another Configuration or namespace, or is that of an Instance of it, and names under akri.sh/ " +
			"are cluster-wide; choose another name, or ask an administrator to release this one",
	}
}
