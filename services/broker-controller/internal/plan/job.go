package plan

// Job is the state of an existing broker Job.
type Job struct {
	Name     string
	Deleting bool
	// Foreign means that its owner is an earlier Instance of the same name.
	Foreign bool
	// Hash of its spec. Empty means unknown; such a Job is never outdated.
	Hash string
}

// ForJobs decides which Jobs to delete and whether to create one. It keeps one Job with the desired
// spec, whatever its name is. desired is false when the Configuration has no Job. Jobs that are
// being deleted do not count.
func ForJobs(desired bool, hash string, existing []Job) (remove []string, create bool) {
	create = desired
	for _, job := range existing {
		switch {
		case job.Deleting:
		case !job.Foreign && create && (job.Hash == "" || job.Hash == hash):
			create = false
		default:
			remove = append(remove, job.Name)
		}
	}
	return remove, create
}
