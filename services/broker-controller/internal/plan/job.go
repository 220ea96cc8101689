package plan

import (
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/services/broker-controller/internal/render"
)

// ForJobs decides which Jobs of an Instance to delete and whether to create one. It keeps one Job
// with the desired spec, whatever its name is. hash is empty when the Configuration has no Job.
// Jobs that are being deleted do not count.
func ForJobs(instance metav1.Object, hash string, existing []*batchv1.Job) (remove []*batchv1.Job, create bool) {
	create = hash != ""
	for _, job := range existing {
		switch {
		case job.DeletionTimestamp != nil:
		case create && IsCurrent(job, instance, hash):
			create = false
		default:
			remove = append(remove, job)
		}
	}
	return remove, create
}

// IsCurrent reports whether a Job has the spec, belongs to the Instance, not to an earlier one of
// the same name, and is not being deleted. A Job without a hash is never outdated.
func IsCurrent(job *batchv1.Job, instance metav1.Object, hash string) bool {
	own := job.Annotations[render.AnnotationSpecHash]
	return metav1.IsControlledBy(job, instance) && job.DeletionTimestamp == nil && (own == "" || own == hash)
}
