package cluster

// For tests of functions without side effects.
var (
	CheckNodes = checkNodes
	PrefixOf   = prefixOf
	ParseTasks = parseTasks
	ReadyAfter = readyAfter

	EnsurePrerequisites = ensurePrerequisites

	RaiseInotifyInstances = raiseInotifyInstances
)

func ParseCgroupMounts(mounts string) (unified string, legacy []string) {
	found := parseCgroupMounts(mounts)
	return found.unified, found.legacy
}

func CheckDir(dir string) error {
	_, err := clusterDir(dir)
	return err
}
