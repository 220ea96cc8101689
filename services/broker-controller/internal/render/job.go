package render

import (
	batchv1 "k8s.io/api/batch/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Job returns the broker Job of an Instance. Its Pods can run on any node that offers the device.
// They have the labels that the Services select.
//
// ttlSecondsAfterFinished is removed from the spec: the Job is the record that it ran. If
// Kubernetes deleted it, the controller would run it again.
func Job(instance *akriv0.Instance, generation int64, spec *batchv1.JobSpec) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: objectMeta(instance, JobName(instance.Name, generation)), Spec: *spec.DeepCopy()}
	job.Annotations = map[string]string{AnnotationSpecHash: Hash(spec)}
	job.Spec.TTLSecondsAfterFinished = nil
	names, template := namesOf(instance), &job.Spec.Template
	names.replacePod(&template.Spec)
	template.Labels, template.Annotations = names.Values(template.Labels), names.Values(template.Annotations)
	if template.Labels == nil {
		template.Labels = map[string]string{}
	}
	for _, label := range []string{LabelController, LabelConfiguration, LabelInstance} {
		template.Labels[label] = job.Labels[label]
	}
	replacePlaceholders(&template.Spec, instance.Name)
	return job
}
