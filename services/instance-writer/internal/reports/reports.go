// Package reports holds what nodes say they see: the last report of each node on each
// Configuration, for as long as the node's stream to this replica is open. Reports are no truth,
// only what this replica has been told.
package reports

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/instance-writer/internal/merge"
)

// Report is what one node says of one Configuration. It must not be changed once it is stored.
type Report struct {
	UID types.UID
	// Generation of the Configuration that it answers; 0: not known.
	Generation int64
	// Sequence of its stream: a report that is overtaken by a later one is void.
	Sequence uint64
	// Complete: what the report lacks is not there.
	Complete bool
	// Devices by the name of the Instance; more than one only when their digests collide.
	Devices  map[string][]merge.Device
	Handlers []akriv0.HandlerStatus
	Problems []akriv0.Problem
}

// Stream is one node's stream; a newer one of the same node replaces it.
type Stream struct{ node string }

// Store holds reports.
type Store struct {
	mu    sync.Mutex
	nodes map[string]*nodeReports
}

type nodeReports struct {
	stream *Stream
	// Both by the Configuration.
	reports  map[types.NamespacedName]*Report
	refusals map[types.NamespacedName]map[string][]merge.Refusal
}

// New returns an empty store.
func New() *Store { return &Store{nodes: map[string]*nodeReports{}} }

// Open starts a stream of the node. What an older stream of it said is forgotten.
func (s *Store) Open(node string) *Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	stream := &Stream{node: node}
	s.nodes[node] = &nodeReports{
		stream:  stream,
		reports: map[types.NamespacedName]*Report{}, refusals: map[types.NamespacedName]map[string][]merge.Refusal{},
	}
	return stream
}

// Close forgets what the stream said: another replica may hear the node by now.
func (s *Store) Close(stream *Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own(stream) != nil {
		delete(s.nodes, stream.node)
	}
}

// Put stores a report and returns the names of the Instances that this one or the one before it
// speaks of. It returns false when a newer stream of the node has taken over.
func (s *Store) Put(stream *Stream, configuration types.NamespacedName, report *Report) (instances []string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.own(stream)
	if own == nil {
		return nil, false
	}
	before := own.reports[configuration]
	if before != nil && before.Sequence > report.Sequence {
		return nil, true
	}
	names := slices.Collect(maps.Keys(report.Devices))
	if before != nil {
		for name := range before.Devices {
			if _, again := report.Devices[name]; !again {
				names = append(names, name)
			}
		}
	}
	own.reports[configuration] = report
	return names, true
}

// Drop forgets the reports on the Configuration with the uid: it was deleted.
func (s *Store) Drop(configuration types.NamespacedName, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range s.nodes {
		if report := of.reports[configuration]; report != nil && report.UID == uid {
			delete(of.reports, configuration)
			delete(of.refusals, configuration)
		}
	}
}

func (s *Store) own(stream *Stream) *nodeReports {
	if of := s.nodes[stream.node]; of != nil && of.stream == stream {
		return of
	}
	return nil
}

// Of returns the devices of the Instance's name in the reports on the Configuration, and the nodes
// whose complete report has none.
func (s *Store) Of(configuration types.NamespacedName, uid types.UID, instance string) (seen []merge.Device, absent []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for node, of := range s.nodes {
		report := of.reports[configuration]
		switch {
		case report == nil || report.UID != uid:
		case len(report.Devices[instance]) > 0:
			seen = append(seen, report.Devices[instance]...)
		case report.Complete:
			absent = append(absent, node)
		}
	}
	return seen, absent
}

// SetRefusals replaces what is refused of the Instance's name, and tells whether that is a change.
func (s *Store) SetRefusals(configuration types.NamespacedName, instance string, refusals []merge.Refusal) (changed bool) {
	byNode := map[string][]merge.Refusal{}
	for _, refusal := range refusals {
		byNode[refusal.Node] = append(byNode[refusal.Node], refusal)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for node, of := range s.nodes {
		changed = of.refuse(configuration, instance, byNode[node]) || changed
	}
	return changed
}

func (n *nodeReports) refuse(configuration types.NamespacedName, instance string, refusals []merge.Refusal) (changed bool) {
	before := n.refusals[configuration][instance]
	same := slices.EqualFunc(before, refusals, func(a, b merge.Refusal) bool { return a.ID == b.ID && a.Message == b.Message })
	if same || n.reports[configuration] == nil {
		return false
	}
	if len(refusals) == 0 {
		delete(n.refusals[configuration], instance)
		return true
	}
	if n.refusals[configuration] == nil {
		n.refusals[configuration] = map[string][]merge.Refusal{}
	}
	n.refusals[configuration][instance] = refusals
	return true
}

// Refusals returns what is refused of the node's report, in the order of the Instances' names.
func (s *Store) Refusals(node string, configuration types.NamespacedName) []merge.Refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of := s.nodes[node]; of != nil {
		return of.ordered(configuration)
	}
	return nil
}

func (n *nodeReports) ordered(configuration types.NamespacedName) []merge.Refusal {
	var all []merge.Refusal
	for _, name := range slices.Sorted(maps.Keys(n.refusals[configuration])) {
		all = append(all, n.refusals[configuration][name]...)
	}
	return all
}

// Heard is a report together with what was refused of it.
type Heard struct {
	*Report
	Refusals []merge.Refusal
}

// On returns the reports on the Configuration by node.
func (s *Store) On(configuration types.NamespacedName, uid types.UID) map[string]Heard {
	s.mu.Lock()
	defer s.mu.Unlock()
	heard := map[string]Heard{}
	for node, of := range s.nodes {
		if report := of.reports[configuration]; report != nil && report.UID == uid {
			heard[node] = Heard{report, of.ordered(configuration)}
		}
	}
	return heard
}

// Names returns the Instances that reports on the Configuration speak of.
func (s *Store) Names(configuration types.NamespacedName) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := map[string]bool{}
	for _, of := range s.nodes {
		if report := of.reports[configuration]; report != nil {
			for name := range report.Devices {
				names[name] = true
			}
		}
	}
	return slices.Collect(maps.Keys(names))
}

// By returns the Instances that the node's reports speak of, by Configuration.
func (s *Store) By(node string) map[types.NamespacedName][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := map[types.NamespacedName][]string{}
	if of := s.nodes[node]; of != nil {
		for configuration, report := range of.reports {
			names[configuration] = slices.Collect(maps.Keys(report.Devices))
		}
	}
	return names
}
