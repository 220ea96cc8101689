package render

import (
	batchv1 "k8s.io/api/batch/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Job is the broker Job of an Instance. Its Pods may run on any node that offers the device. They
// get the labels that the Services select by.
//
// The user's ttlSecondsAfterFinished is left out: the Job is the record that it ran, and one that
// Kubernetes removed would be made, and run, again.
func Job(instance *akriv0.Instance, generation int64, spec *batchv1.JobSpec) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: instanceObject(instance, JobName(instance.Name, generation)), Spec: *spec.DeepCopy()}
	job.Annotations = map[string]string{AnnotationSpecHash: Hash(spec)}
	job.Spec.TTLSecondsAfterFinished = nil
	template := &job.Spec.Template
	if template.Labels == nil {
		template.Labels = map[string]string{}
	}
	for _, label := range []string{LabelController, LabelConfiguration, LabelInstance} {
		template.Labels[label] = job.Labels[label]
	}
	fillPlaceholders(&template.Spec, instance.Name)
	return job
}
