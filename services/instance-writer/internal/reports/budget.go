package reports

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"unique"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/instance-writer/internal/merge"
)

// ErrHeaviest ends the stream of the node whose reports need the most memory.
var ErrHeaviest = errors.New("memory for reports is short, and the reports of this node need the most")

// deviceOverhead is the memory of a device besides its id and properties, in bytes.
const deviceOverhead = 256

// textOverhead is the memory of a handler or a problem besides its texts, in bytes.
const textOverhead = 128

// budget counts the bytes of all reports. A device that several nodes report is stored and counted
// once, and each of these nodes is charged with an equal share.
type budget struct {
	limit, total int
	// holders is the number of reports with a device.
	holders map[unique.Handle[merge.Device]]int
}

func cost(device unique.Handle[merge.Device]) int { return device.Value().Size() + deviceOverhead }

func (b *budget) add(report *Report) {
	b.total += report.textBytes()
	for _, device := range report.Devices {
		if b.holders[device]++; b.holders[device] == 1 {
			b.total += cost(device)
		}
	}
}

func (b *budget) remove(report *Report) {
	b.total -= report.textBytes()
	for _, device := range report.Devices {
		if b.holders[device]--; b.holders[device] == 0 {
			delete(b.holders, device)
			b.total -= cost(device)
		}
	}
}

// charge returns the bytes of a node. The charges of all nodes are the total.
func (b *budget) charge(stream *Stream) (bytes int) {
	for _, report := range stream.reports {
		bytes += report.textBytes()
		for _, device := range report.Devices {
			bytes += cost(device) / b.holders[device]
		}
	}
	return bytes
}

// textBytes returns the bytes of what a report has besides devices.
func (r *Report) textBytes() (bytes int) {
	for _, handler := range r.Handlers {
		bytes += handlerBytes(handler)
	}
	for _, problem := range r.Problems {
		bytes += problemBytes(problem)
	}
	return bytes
}

func handlerBytes(handler akriv0.HandlerStatus) int {
	return textOverhead + len(handler.Name) + len(handler.Endpoint)
}

func problemBytes(problem akriv0.Problem) int {
	bytes := textOverhead + len(problem.Reason) + len(problem.Message)
	for _, evidence := range problem.Evidence {
		bytes += len(evidence)
	}
	if s := problem.Subject; s != nil {
		bytes += len(s.Kind) + len(s.Namespace) + len(s.Name)
	}
	if w := problem.Wait; w != nil {
		bytes += len(w.Awaited) + len(w.Then)
	}
	return bytes
}

// heaviest returns the node with the largest charge. Of several it is the candidate, so that nodes
// with equal reports do not displace each other, or else the first by name.
func (s *Store) heaviest(candidate string) (node string, charge int) {
	if stream := s.open[candidate]; stream != nil {
		node, charge = candidate, s.budget.charge(stream)
	}
	for _, name := range slices.Sorted(maps.Keys(s.open)) {
		if bytes := s.budget.charge(s.open[name]); bytes > charge {
			node, charge = name, bytes
		}
	}
	return node, charge
}

// end ends the stream of a node. Its Instances stay: a node that does not report may have its
// devices.
func (s *Store) end(node string) {
	stream := s.open[node]
	s.remove(node)
	stream.end(ErrHeaviest)
}

// fit ends the streams of the heaviest nodes until the reports are within the limit. A node that
// needs less than an equal share of the limit keeps its stream, whatever other nodes report.
func (s *Store) fit(sender string) {
	for s.budget.total > s.budget.limit {
		node, _ := s.heaviest(sender)
		if node == "" {
			return
		}
		s.end(node)
	}
}

// MakeRoom ends the stream of the heaviest node if that is another node than the one for which
// memory is needed, and if it needs more than an equal share of the limit. Otherwise it returns
// false.
func (s *Store) MakeRoom(node string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	heaviest, charge := s.heaviest(node)
	if heaviest == "" || heaviest == node || charge <= s.budget.limit/cmp.Or(len(s.open), 1) {
		return false
	}
	s.end(heaviest)
	return true
}

// Bytes returns the bytes of all reports.
func (s *Store) Bytes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.budget.total
}
