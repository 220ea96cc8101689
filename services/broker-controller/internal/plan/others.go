package plan

// Change is what should happen to an object of which there is at most one.
type Change int

// Changes.
const (
	Keep Change = iota
	Create
	Replace
	Remove
)

// ForObject compares the hash of the spec that is wanted with that of the object that is there;
// `wanted` and `there` say whether there is one. An object of unknown hash is kept.
func ForObject(wanted, there bool, wantedHash, thereHash string) Change {
	switch {
	case wanted && !there:
		return Create
	case !wanted && there:
		return Remove
	case wanted && thereHash != "" && thereHash != wantedHash:
		return Replace
	}
	return Keep
}

// Job is what is known of a broker Job.
type Job struct {
	Name              string
	Deleting, Foreign bool
	// Hash of the spec it was made from; empty: unknown, never outdated.
	Hash string
}

// ForJobs keeps one Job that was made from the wanted spec, whatever it is named after, and says
// which to remove and whether one must be made. A Job that is on its way out does not count.
func ForJobs(wanted bool, hash string, there []Job) (remove []string, create bool) {
	create = wanted
	for _, job := range there {
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

// Brokers is what a Service leads to.
type Brokers struct {
	// Running brokers.
	Running int
	// Left are the brokers that have neither failed nor succeeded.
	Left int
	// Coming: a broker is due even when none is left, so that its Service keeps its address
	// meanwhile.
	Coming bool
}

// WantsService says whether a Service that the user asks for should be there: from the first
// running broker to the last.
func WantsService(there bool, brokers Brokers) bool {
	return brokers.Running > 0 || there && (brokers.Left > 0 || brokers.Coming)
}
