package soak

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/cluster"
)

// user is a running container that uses devices.
type user struct {
	cluster.Container
	node string
	// instances are those of its devices, by the environment of its main process.
	instances []string
	// since is when the soak first saw it.
	since time.Time
}

// users returns the running containers that use devices, by container id. since are those that were
// seen before.
func users(nodes []cluster.Node, since map[string]user) (map[string]user, error) {
	now, found := time.Now(), map[string]user{}
	for _, node := range nodes {
		containers, err := node.Containers()
		if err != nil {
			return nil, err
		}
		for _, container := range containers {
			if known, ok := since[container.ID]; ok && known.PID == container.PID {
				found[container.ID] = known
				continue
			}
			// A process that has ended, or has not executed its program yet, has no such variables.
			environment, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(container.PID), "environ"))
			if instances := instancesIn(environment); len(instances) > 0 {
				found[container.ID] = user{container, node.Name(), instances, now}
			}
		}
	}
	return found, nil
}

// instancesIn returns the Instances whose properties are in an environment.
func instancesIn(environment []byte) (instances []string) {
	for variable := range bytes.SplitSeq(environment, []byte{0}) {
		key, configuration, _ := strings.Cut(string(variable), "=")
		if digest, ok := strings.CutPrefix(key, nameProperty+"_"); ok {
			instances = append(instances, akriv0.InstanceName(configuration, strings.ToLower(digest)))
		}
	}
	return instances
}

// both returns the containers of two lists: they ran all the time between the two.
func both(before, after map[string]user) map[string]user {
	running := maps.Clone(after)
	maps.DeleteFunc(running, func(id string, _ user) bool { _, ran := before[id]; return !ran })
	return running
}

// count returns the number of containers that use the Instance, by node.
func count(running map[string]user, instance string) map[string]int {
	counts := map[string]int{}
	for _, u := range running {
		if slices.Contains(u.instances, instance) {
			counts[u.node]++
		}
	}
	return counts
}

// held returns the number of slots that each node holds.
func held(instance *akriv0.Instance) (map[string]int, error) {
	all, err := holders(instance)
	counts := map[string]int{}
	for _, holder := range all {
		if !holder.Free() {
			counts[holder.Node]++
		}
	}
	return counts, err
}

// holders returns the holders of all slots.
func holders(instance *akriv0.Instance) (all []akriv0.SlotHolder, err error) {
	for slot, value := range instance.Spec.DeviceUsage {
		holder, err := akriv0.ParseSlotHolder(value)
		if err != nil {
			return nil, fmt.Errorf("slot %s: %w", slot, err)
		}
		all = append(all, holder)
	}
	return all, nil
}
