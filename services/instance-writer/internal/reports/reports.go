// Package reports stores the reports of the nodes whose streams are open on this replica. It keeps
// the latest report of each node on each Configuration until the stream closes. Reports are input
// for Instances and are not persisted.
package reports

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/instance-writer/internal/merge"
)

// Report is the report of one node on one Configuration. It must not change after Put.
type Report struct {
	UID types.UID
	// Generation of the Configuration that was discovered. 0: unknown.
	Generation int64
	// Sequence orders the reports of a stream. Put ignores a report older than the stored one.
	Sequence uint64
	// Complete means that a device that the report lacks does not exist on the node.
	Complete bool
	// Answered means that the status of the Configuration follows the report.
	Answered bool
	Devices  Devices
	// Excess are the devices that Put removed from Devices because the node has too many. The
	// caller of Put clears it.
	Excess   Devices
	Handlers []akriv0.HandlerStatus
	Problems []akriv0.Problem
	// ProblemsSince is when the first report with these problems came. Put sets it.
	ProblemsSince time.Time
}

// WithRefusals is a report and the devices in it that were refused.
type WithRefusals struct {
	*Report
	Refusals []merge.Refusal
}

// Stream is the stream of a node. A newer stream of the same node replaces it.
type Stream struct{ node string }

// Store holds reports.
type Store struct {
	mu    sync.Mutex
	nodes map[string]*nodeReports
	// names has the nodes whose reports have a device with a short name, in order.
	names map[nameKey][]string
	// refused are the short names with refusals.
	refused sets.Set[nameKey]
	// closed has the refusals of nodes whose streams have closed. Most nodes reconnect at once and
	// report the same devices, so that their status does not change meanwhile.
	closed map[string]closedStream
}

type closedStream struct {
	at       time.Time
	refusals refusals
}

// maxNodeDevices is the number of devices that are accepted of one node.
const maxNodeDevices = 10_000

// closedAge is longer than a node takes to reconnect.
const closedAge = time.Minute

type nameKey struct {
	configuration types.NamespacedName
	shortName     string
}

// nodeReports holds the reports of one node and their refusals by Configuration. Refusals are
// grouped by short name.
type nodeReports struct {
	stream   *Stream
	reports  map[types.NamespacedName]*Report
	refusals refusals
}

type refusals = map[types.NamespacedName]map[string][]merge.Refusal

// New returns an empty Store.
func New() *Store {
	return &Store{
		nodes: map[string]*nodeReports{}, names: map[nameKey][]string{}, refused: sets.New[nameKey](),
		closed: map[string]closedStream{},
	}
}

// Open starts a stream of the node and drops the reports of its previous stream.
func (s *Store) Open(node string) *Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(node)
	stream := &Stream{node: node}
	opened := &nodeReports{stream: stream, reports: map[types.NamespacedName]*Report{}, refusals: s.closed[node].refusals}
	if opened.refusals == nil {
		opened.refusals = refusals{}
	}
	delete(s.closed, node)
	s.nodes[node] = opened
	return stream
}

// Close drops the reports of the stream. The node may have a stream to another replica by then.
func (s *Store) Close(stream *Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current(stream) != nil {
		s.remove(stream.node)
	}
}

func (s *Store) remove(node string) {
	if reports := s.nodes[node]; reports != nil {
		for configuration, report := range reports.reports {
			s.index(node, configuration, report, nil)
		}
		delete(s.nodes, node)
		now := time.Now()
		maps.DeleteFunc(s.closed, func(_ string, c closedStream) bool { return now.Sub(c.at) > closedAge })
		if len(reports.refusals) > 0 {
			s.closed[node] = closedStream{now, reports.refusals}
		}
	}
}

// index updates names for a report that replaces the previous one. Both may be nil.
func (s *Store) index(node string, configuration types.NamespacedName, previous, report *Report) {
	if previous != nil {
		for _, name := range previous.Devices.shortNames() {
			key := nameKey{configuration, name}
			nodes := s.names[key]
			if at, found := slices.BinarySearch(nodes, node); found {
				nodes = slices.Delete(nodes, at, at+1)
			}
			if s.names[key] = nodes; len(nodes) == 0 {
				delete(s.names, key)
			}
		}
	}
	if report != nil {
		for _, name := range report.Devices.shortNames() {
			key := nameKey{configuration, name}
			if at, found := slices.BinarySearch(s.names[key], node); !found {
				s.names[key] = slices.Insert(s.names[key], at, node)
			}
		}
	}
}

// Put stores a report and returns the short names in it and in the previous report, with
// duplicates. It returns false if the node has a newer stream.
func (s *Store) Put(stream *Stream, configuration types.NamespacedName, report *Report) (names []string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	node := s.current(stream)
	if node == nil {
		return nil, false
	}
	previous := node.reports[configuration]
	if previous != nil && previous.Sequence > report.Sequence {
		return nil, true
	}
	report.limit(maxNodeDevices - node.devicesOfOthers(configuration))
	names = report.Devices.shortNames()
	if previous != nil {
		names = append(names, previous.Devices.shortNames()...)
	}
	report.ProblemsSince = time.Now()
	if previous != nil && slices.EqualFunc(previous.Problems, report.Problems, akriv0.Problem.Same) {
		report.ProblemsSince = previous.ProblemsSince
	}
	maps.DeleteFunc(node.refusals[configuration], func(name string, _ []merge.Refusal) bool { return !report.Devices.has(name) })
	s.index(stream.node, configuration, previous, report)
	node.reports[configuration] = report
	return names, true
}

// devicesOfOthers returns the number of devices in the reports on other Configurations.
func (n *nodeReports) devicesOfOthers(configuration types.NamespacedName) (devices int) {
	for other, report := range n.reports {
		if other != configuration {
			devices += len(report.Devices)
		}
	}
	return devices
}

// limit removes devices beyond a number. The report is then not complete, so that their Instances
// stay.
func (r *Report) limit(devices int) {
	if len(r.Devices) <= devices {
		return
	}
	r.Excess, r.Devices = r.Devices[devices:], slices.Clone(r.Devices[:devices])
	r.Complete, r.Answered = false, r.Answered || r.Complete
	r.Problems = append(r.Problems, akriv0.Problem{
		Reason:  akriv0.ReasonTooManyDevices,
		Message: fmt.Sprintf("%d devices are not accepted: a node can have %d devices of all Configurations", len(r.Excess), maxNodeDevices),
	})
}

// Drop removes the reports on a deleted Configuration.
func (s *Store) Drop(configuration types.NamespacedName, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, node := range s.nodes {
		if report := node.reports[configuration]; report != nil && report.UID == uid {
			s.index(name, configuration, report, nil)
			delete(node.reports, configuration)
			delete(node.refusals, configuration)
		}
	}
}

// Nodes returns the nodes with an open stream.
func (s *Store) Nodes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.nodes))
}

// current returns the reports of the stream's node, or nil if the stream is closed or replaced.
func (s *Store) current(stream *Stream) *nodeReports {
	if node := s.nodes[stream.node]; node != nil && node.stream == stream {
		return node
	}
	return nil
}

// Devices returns the devices with the short name in the reports on the Configuration.
func (s *Store) Devices(configuration types.NamespacedName, uid types.UID, shortName string) []merge.Device {
	s.mu.Lock()
	defer s.mu.Unlock()
	var devices []merge.Device
	for _, node := range s.names[nameKey{configuration, shortName}] {
		if report := s.nodes[node].reports[configuration]; report.UID == uid {
			devices = append(devices, report.of(node, shortName)...)
		}
	}
	return devices
}

// Absent returns whether the complete report of the node has no device with the short name.
func (s *Store) Absent(configuration types.NamespacedName, uid types.UID, shortName, node string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	reports := s.nodes[node]
	if reports == nil {
		return false
	}
	report := reports.reports[configuration]
	return report != nil && report.UID == uid && report.Complete && !report.Devices.has(shortName)
}

// SetRefusals replaces the refusals of the devices with the short name and reports whether they
// changed.
func (s *Store) SetRefusals(configuration types.NamespacedName, shortName string, refusals []merge.Refusal) (changed bool) {
	byNode := map[string][]merge.Refusal{}
	for _, refusal := range refusals {
		byNode[refusal.Node] = append(byNode[refusal.Node], refusal)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := nameKey{configuration, shortName}
	if len(refusals) == 0 && !s.refused.Has(key) {
		return false
	}
	if s.refused.Insert(key); len(refusals) == 0 {
		s.refused.Delete(key)
	}
	for name, node := range s.nodes {
		changed = node.setRefusals(configuration, shortName, byNode[name]) || changed
	}
	return changed
}

func (n *nodeReports) setRefusals(configuration types.NamespacedName, shortName string, refusals []merge.Refusal) (changed bool) {
	equal := func(a, b merge.Refusal) bool { return a.ID == b.ID && a.Message == b.Message }
	if slices.EqualFunc(n.refusals[configuration][shortName], refusals, equal) || n.reports[configuration] == nil {
		return false
	}
	if len(refusals) == 0 {
		delete(n.refusals[configuration], shortName)
		return true
	}
	if n.refusals[configuration] == nil {
		n.refusals[configuration] = map[string][]merge.Refusal{}
	}
	n.refusals[configuration][shortName] = refusals
	return true
}

// Refusals returns the refusals of a node's report, ordered by short name.
func (s *Store) Refusals(node string, configuration types.NamespacedName) []merge.Refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reports := s.nodes[node]; reports != nil {
		return reports.orderedRefusals(configuration)
	}
	return nil
}

func (n *nodeReports) orderedRefusals(configuration types.NamespacedName) []merge.Refusal {
	var all []merge.Refusal
	for _, name := range slices.Sorted(maps.Keys(n.refusals[configuration])) {
		all = append(all, n.refusals[configuration][name]...)
	}
	return all
}

// ByNode returns the reports on the Configuration by node.
func (s *Store) ByNode(configuration types.NamespacedName, uid types.UID) map[string]WithRefusals {
	s.mu.Lock()
	defer s.mu.Unlock()
	byNode := map[string]WithRefusals{}
	for name, node := range s.nodes {
		if report := node.reports[configuration]; report != nil && report.UID == uid {
			byNode[name] = WithRefusals{report, node.orderedRefusals(configuration)}
		}
	}
	return byNode
}

// ShortNames returns the short names in the reports on the Configuration, with duplicates.
func (s *Store) ShortNames(configuration types.NamespacedName) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, node := range s.nodes {
		if report := node.reports[configuration]; report != nil {
			names = append(names, report.Devices.shortNames()...)
		}
	}
	return names
}

// ShortNamesOn returns the short names in the node's reports, by Configuration.
func (s *Store) ShortNamesOn(node string) map[types.NamespacedName][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := map[types.NamespacedName][]string{}
	if reports := s.nodes[node]; reports != nil {
		for configuration, report := range reports.reports {
			names[configuration] = report.Devices.shortNames()
		}
	}
	return names
}
