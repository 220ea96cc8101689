package explain

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// PodsNotCreated means that the API server refuses to create the Pods of a service of Akri.
const PodsNotCreated CauseID = "PodsNotCreated"

func init() { register(rule{PodsNotCreated, LinkServices, 5, servicesWith(PodsNotCreated)}) }

// podsNotCreated returns the cause for a service with fewer Pods than it should have. The condition
// of a Deployment has the message of the API server; DaemonSets have only Events.
func (service Service) podsNotCreated(s *Snapshot) *Cause {
	if len(service.pods) >= int(service.Desired) {
		return nil
	}
	message, byEvent := service.refused, false
	if event := newestEvent(s.Warnings, "FailedCreate", ofWorkload(service)); message == "" && event != nil {
		message, byEvent = event.Message, true
	}
	if message == "" {
		return nil
	}
	return &Cause{
		ID: PodsNotCreated, Subject: subject(service.Kind, service.Namespace, service.Name),
		Message:  "the API server refuses the Pods of " + service.Component + ": " + message,
		Remedies: s.allowPods(service, message),
		byEvent:  byEvent,
	}
}

// allowPods returns the remedies for a message of the API server, which has no code for it.
func (in *Installation) allowPods(service Service, message string) []Remedy {
	describe := remedy("Read what the API server states.", "kubectl describe %s %s --namespace %s", strings.ToLower(service.Kind), service.Name, service.Namespace)
	switch {
	case strings.Contains(message, "exceeded quota"), strings.Contains(message, "failed quota"):
		return []Remedy{remedy("Raise the quota, or delete what uses it.", "kubectl describe resourcequota --namespace %s", service.Namespace), describe}
	case strings.Contains(message, "violates PodSecurity"):
		return []Remedy{
			remedy("Allow such Pods in the namespace.", "kubectl label namespace %s --overwrite pod-security.kubernetes.io/enforce=privileged", service.Namespace),
			in.restarting(in.upgrade("Or give the services of nodes a namespace of their own.", "--set global.nodePlane.namespace=NODE-NAMESPACE")),
		}
	case isOfLimitRange(message):
		return []Remedy{
			remedy("Compare the LimitRange with the resources of the service.", "kubectl describe limitrange --namespace %s", service.Namespace),
			in.upgrade("Change the resources of the service.", "--set %s.resources.limits.memory=MEMORY", service.Component).
				interrupting(service.Kind, service.Namespace, service.Name),
		}
	default:
		return []Remedy{describe}
	}
}

// replicaFailure returns the message of the condition that states why Pods are not created.
func replicaFailure(conditions []appsv1.DeploymentCondition) string {
	for _, condition := range conditions {
		if condition.Type == appsv1.DeploymentReplicaFailure && condition.Status == corev1.ConditionTrue {
			return condition.Message
		}
	}
	return ""
}
