// Package reports stores the reports of the nodes whose streams are open on this replica. It keeps
// the latest report of each node on each Configuration until the stream closes. Reports are input
// for Instances and are not persisted.
package reports

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/instance-writer/internal/cluster"
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
	// bytes is the size of Devices. Put sets it.
	bytes int
	// ProblemsSince is when the first report with these problems came. Put sets it.
	ProblemsSince time.Time
}

// Stream is the stream of a node, with its reports and their refusals by Configuration. A newer
// stream of the same node replaces it.
type Stream struct {
	node     string
	reports  map[types.NamespacedName]*Report
	refusals refusals
	closed   time.Time
	// end ends the call of the stream.
	end context.CancelCauseFunc
}

// refusals are grouped by short name.
type refusals = map[types.NamespacedName]map[string][]merge.Refusal

// Store holds reports.
type Store struct {
	mu   sync.Mutex
	open map[string]*Stream
	// listed has the nodes whose reports have a device of a group, in order.
	listed map[cluster.Group][]string
	// refused are the groups with refusals.
	refused sets.Set[cluster.Group]
	// closed has the streams that have closed, for their refusals. Most nodes reconnect at once and
	// report the same devices, so that their status does not change meanwhile.
	closed map[string]*Stream
	budget budget
}

// closedAge is longer than a node takes to reconnect.
const closedAge = time.Minute

// New returns an empty Store whose reports have at most the number of bytes.
func New(maxBytes int) *Store {
	return &Store{
		open: map[string]*Stream{}, listed: map[cluster.Group][]string{}, refused: sets.New[cluster.Group](),
		closed: map[string]*Stream{},
		budget: budget{limit: maxBytes, holders: map[unique.Handle[merge.Device]]int{}},
	}
}

// Open starts a stream of the node and drops the reports of its previous stream. The Store calls
// end with ErrHeaviest if it needs the memory of the stream.
func (s *Store) Open(node string, end context.CancelCauseFunc) *Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(node)
	stream := &Stream{node: node, reports: map[types.NamespacedName]*Report{}, refusals: refusals{}, end: end}
	if closed := s.closed[node]; closed != nil {
		stream.refusals = closed.refusals
		delete(s.closed, node)
	}
	s.open[node] = stream
	return stream
}

// Close drops the reports of the stream. The node may have a stream to another replica by then.
func (s *Store) Close(stream *Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isOpen(stream) {
		s.remove(stream.node)
	}
}

func (s *Store) remove(node string) {
	stream := s.open[node]
	if stream == nil {
		return
	}
	for configuration, report := range stream.reports {
		s.index(node, configuration, report, nil)
	}
	delete(s.open, node)

	now := time.Now()
	maps.DeleteFunc(s.closed, func(_ string, other *Stream) bool { return now.Sub(other.closed) > closedAge })
	if len(stream.refusals) > 0 {
		stream.reports, stream.closed = nil, now
		s.closed[node] = stream
	}
}

// index updates listed and budget for a report that replaces the previous one. Both may be nil.
func (s *Store) index(node string, configuration types.NamespacedName, previous, report *Report) {
	if previous != nil {
		s.budget.remove(previous)
		for _, name := range previous.Devices.shortNames() {
			key := cluster.Group{Configuration: configuration, ShortName: name}
			nodes := s.listed[key]
			if at, found := slices.BinarySearch(nodes, node); found {
				nodes = slices.Delete(nodes, at, at+1)
			}
			if s.listed[key] = nodes; len(nodes) == 0 {
				delete(s.listed, key)
			}
		}
	}
	if report != nil {
		s.budget.add(report)
		for _, name := range report.Devices.shortNames() {
			key := cluster.Group{Configuration: configuration, ShortName: name}
			if at, found := slices.BinarySearch(s.listed[key], node); !found {
				s.listed[key] = slices.Insert(s.listed[key], at, node)
			}
		}
	}
}

// Put stores a report and returns the short names in it and in the previous report, with
// duplicates. It returns false if the node has a newer stream, or if the memory of its stream is
// needed.
func (s *Store) Put(stream *Stream, configuration types.NamespacedName, report *Report) (names []string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isOpen(stream) {
		return nil, false
	}
	previous := stream.reports[configuration]
	if previous != nil && previous.Sequence > report.Sequence {
		return nil, true
	}
	others, bytes, text := stream.onOthers(configuration)
	report.limit(cluster.MaxNodeDevices-others, cluster.MaxNodeBytes-bytes)
	report.limitText(cluster.MaxNodeText - text)
	names = report.Devices.shortNames()
	if previous != nil {
		names = append(names, previous.Devices.shortNames()...)
	}
	report.ProblemsSince = time.Now()
	if previous != nil && slices.EqualFunc(previous.Problems, report.Problems, akriv0.Problem.Same) {
		report.ProblemsSince = previous.ProblemsSince
	}
	maps.DeleteFunc(stream.refusals[configuration], func(name string, _ []merge.Refusal) bool { return !report.Devices.has(name) })
	s.index(stream.node, configuration, previous, report)
	stream.reports[configuration] = report
	s.fit(stream.node)
	return names, s.isOpen(stream)
}

// onOthers returns the number and the bytes of the devices in the reports on other Configurations,
// and the bytes of the handlers and problems in them.
func (s *Stream) onOthers(configuration types.NamespacedName) (devices, bytes, text int) {
	for other, report := range s.reports {
		if other != configuration {
			devices += len(report.Devices)
			bytes += report.bytes
			text += report.textBytes()
		}
	}
	return devices, bytes, text
}

// limit removes devices beyond a number or a size. The report is then not complete, so that their
// Instances stay.
func (r *Report) limit(devices, bytes int) {
	accepted := 0
	for _, device := range r.Devices[:min(len(r.Devices), max(devices, 0))] {
		size := device.Value().Size()
		if r.bytes+size > bytes {
			break
		}
		r.bytes += size
		accepted++
	}

	if accepted == len(r.Devices) {
		return
	}
	r.Excess, r.Devices = r.Devices[accepted:], slices.Clone(r.Devices[:accepted])
	r.Complete, r.Answered = false, r.Answered || r.Complete
	// It is the first, so that limitText does not drop it before others.
	r.Problems = slices.Insert(r.Problems, 0, akriv0.Problem{
		Reason: akriv0.ReasonTooManyDevices,
		Message: fmt.Sprintf("%d devices are not accepted: a node can have %d devices of all Configurations, with %d MiB of ids and properties",
			len(r.Excess), cluster.MaxNodeDevices, cluster.MaxNodeBytes>>20),
	})
}

// limitText removes handlers and problems beyond a size, and the evidence of all problems before
// that. A problem states it, if the size is enough for one.
func (r *Report) limitText(bytes int) {
	if r.textBytes() <= bytes {
		return
	}
	dropped := akriv0.Problem{
		Reason: akriv0.ReasonTooManyProblems,
		Message: fmt.Sprintf("not all handlers and problems are stored: a node can report %d MiB of them of all Configurations",
			cluster.MaxNodeText>>20),
	}
	if bytes -= problemBytes(dropped); bytes < 0 {
		r.Handlers, r.Problems = nil, nil
		return
	}

	for i := range r.Problems {
		r.Problems[i].Evidence = nil
	}
	r.Handlers, bytes = within(r.Handlers, bytes, handlerBytes)
	r.Problems, _ = within(r.Problems, bytes, problemBytes)
	r.Problems = append(r.Problems, dropped)
}

// within returns a copy of the first items that a size allows, and what is left of it.
func within[T any](items []T, bytes int, sizeOf func(T) int) (kept []T, left int) {
	for _, item := range items {
		if size := sizeOf(item); size <= bytes {
			bytes -= size
			kept = append(kept, item)
			continue
		}
		break
	}
	return kept, bytes
}

// Drop removes the reports on a deleted Configuration.
func (s *Store) Drop(configuration types.NamespacedName, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for node, stream := range s.open {
		if report := stream.reports[configuration]; report != nil && report.UID == uid {
			s.index(node, configuration, report, nil)
			delete(stream.reports, configuration)
			delete(stream.refusals, configuration)
		}
	}
}

// Nodes returns the nodes with an open stream.
func (s *Store) Nodes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.open))
}

// isOpen returns whether the stream was neither closed nor replaced.
func (s *Store) isOpen(stream *Stream) bool { return s.open[stream.node] == stream }

// Devices returns the devices with the short name in the reports on the Configuration.
func (s *Store) Devices(configuration types.NamespacedName, uid types.UID, shortName string) []merge.Device {
	s.mu.Lock()
	defer s.mu.Unlock()
	var devices []merge.Device
	for _, node := range s.listed[cluster.Group{Configuration: configuration, ShortName: shortName}] {
		if report := s.open[node].reports[configuration]; report.UID == uid {
			devices = append(devices, report.of(node, shortName)...)
		}
	}
	return devices
}

// Absent returns whether the complete report of the node has no device with the short name.
func (s *Store) Absent(configuration types.NamespacedName, uid types.UID, shortName, node string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	stream := s.open[node]
	if stream == nil {
		return false
	}
	report := stream.reports[configuration]
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
	key := cluster.Group{Configuration: configuration, ShortName: shortName}
	if len(refusals) == 0 && !s.refused.Has(key) {
		return false
	}
	if s.refused.Insert(key); len(refusals) == 0 {
		s.refused.Delete(key)
	}
	for node, stream := range s.open {
		changed = stream.setRefusals(configuration, shortName, byNode[node]) || changed
	}
	return changed
}

func (s *Stream) setRefusals(configuration types.NamespacedName, shortName string, refusals []merge.Refusal) (changed bool) {
	equal := func(a, b merge.Refusal) bool { return a.ID == b.ID && a.Message == b.Message }
	if slices.EqualFunc(s.refusals[configuration][shortName], refusals, equal) || s.reports[configuration] == nil {
		return false
	}
	if len(refusals) == 0 {
		delete(s.refusals[configuration], shortName)
		return true
	}
	if s.refusals[configuration] == nil {
		s.refusals[configuration] = map[string][]merge.Refusal{}
	}
	s.refusals[configuration][shortName] = refusals
	return true
}

// Refusals returns the refusals of a node's report, ordered by short name.
func (s *Store) Refusals(node string, configuration types.NamespacedName) []merge.Refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []merge.Refusal
	if stream := s.open[node]; stream != nil {
		byName := stream.refusals[configuration]
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			all = append(all, byName[name]...)
		}
	}
	return all
}

// ByNode returns the reports on the Configuration by node.
func (s *Store) ByNode(configuration types.NamespacedName, uid types.UID) map[string]*Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	byNode := map[string]*Report{}
	for node, stream := range s.open {
		if report := stream.reports[configuration]; report != nil && report.UID == uid {
			byNode[node] = report
		}
	}
	return byNode
}

// ShortNames returns the short names in the reports on the Configuration, with duplicates.
func (s *Store) ShortNames(configuration types.NamespacedName) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, stream := range s.open {
		if report := stream.reports[configuration]; report != nil {
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
	if stream := s.open[node]; stream != nil {
		for configuration, report := range stream.reports {
			names[configuration] = report.Devices.shortNames()
		}
	}
	return names
}
