package client

import (
	"fmt"
	"strings"

	"github.com/gopcua/opcua/ua"

	"akri.sh/services/handler-opcua/internal/servers"
)

const (
	null = 0xffffffff // the length of an array that is not there
	// maxText is what a device may say in one property; the rest is left out.
	maxText = 4 << 10
	// maxPolicies of one server are looked at, with names of less than maxPolicy bytes: together they are one property.
	maxPolicies, maxPolicy = 64, 64
)

// What follows an element of DiagnosticInfo, by its bits (OPC 10000-6, 5.2.2.12).
const (
	diagnosticNumbers = 0x01 | 0x02 | 0x04 | 0x08 | 0x20
	diagnosticText    = 0x10
	diagnosticInner   = 0x40
)

// Bits of an ExtensionObject (OPC 10000-6, 5.2.2.15).
const hasBody = 0x01 | 0x02

// reader reads answers. What it makes is no larger than what it reads.
type reader struct {
	*ua.Buffer
	refused error
}

func newReader(data []byte) *reader { return &reader{Buffer: ua.NewBuffer(data)} }

func (r *reader) err() error {
	if err := r.Error(); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	return r.refused
}

func (r *reader) refuse(err error) {
	if r.refused == nil {
		r.refused = err
	}
}

// each reads an array whose elements have at least so many bytes.
func (r *reader) each(least int, read func()) {
	count := r.ReadUint32()
	if count == null || r.err() != nil {
		return
	}
	if int64(count)*int64(least) > int64(r.Len()) {
		r.refuse(fmt.Errorf("an array of %d elements in an answer of %d bytes", count, r.Len()))
		return
	}
	for range count {
		if read(); r.err() != nil {
			return
		}
	}
}

// text is what can be said of a device.
func (r *reader) text() string {
	return valid(r.ReadString())
}

// valid is text as properties can have it: many a server writes Latin-1.
func valid(text string) string {
	text = strings.ToValidUTF8(text[:min(len(text), maxText)], "\uFFFD")
	return strings.ToValidUTF8(text[:min(len(text), maxText)], "")
}

func (r *reader) texts() (texts []string) {
	r.each(4, func() { texts = append(texts, r.text()) })
	return texts
}

// header reads which answer it is, and whether it is one (OPC 10000-4, 7.33).
func (r *reader) header(wanted uint16) {
	var id ua.ExpandedNodeID
	r.ReadStruct(&id)
	r.ReadTime()
	r.ReadUint32() // of the request
	status := ua.StatusCode(r.ReadUint32())
	r.diagnostics()
	r.texts() // of the diagnostics
	var additional ua.ExpandedNodeID
	r.ReadStruct(&additional)
	if r.ReadByte()&hasBody != 0 {
		r.ReadBytes()
	}
	switch {
	case r.err() != nil:
	case status != ua.StatusOK:
		r.refuse(status)
	case id.NodeID.Namespace() != 0 || id.NodeID.IntID() != uint32(wanted):
		r.refuse(fmt.Errorf("an answer of type %v: want %d", id.NodeID, wanted))
	}
}

// diagnostics skips what nobody asked for.
func (r *reader) diagnostics() {
	for more := true; more && r.err() == nil; {
		mask := r.ReadByte()
		for bit := byte(1); bit != 0; bit <<= 1 {
			switch mask & bit {
			case 0:
			case diagnosticText:
				r.ReadBytes()
			case diagnosticNumbers & bit:
				r.ReadUint32()
			}
		}
		more = mask&diagnosticInner != 0
	}
}

// application reads an ApplicationDescription (OPC 10000-4, 7.2).
func (r *reader) application() servers.Application {
	var one servers.Application
	one.URI = r.text()
	r.ReadString() // of the product
	var name ua.LocalizedText
	r.ReadStruct(&name)
	one.Name = valid(name.Text)
	one.Type = servers.Type(r.ReadInt32()) // same numbers
	r.ReadString()                         // of the gateway
	r.ReadString()                         // of the discovery profile
	one.URLs = r.texts()
	return one
}

// leastApplication is an ApplicationDescription in which nothing is said.
const leastApplication = 4 + 4 + 1 + 4 + 4 + 4 + 4

func (r *reader) applications() (all []servers.Application) {
	r.each(leastApplication, func() {
		if one := r.application(); len(all) < maxApplications {
			all = append(all, one)
		}
	})
	return all
}

// onNetwork reads the URLs of ServersOnNetwork (OPC 10000-4, 5.4.3).
func (r *reader) onNetwork() (urls []string) {
	r.ReadTime() // since when they are counted
	r.each(4+4+4+4, func() {
		r.ReadUint32() // its number
		r.ReadString() // its name
		url := r.text()
		discoveryServer := false
		r.each(4, func() { discoveryServer = r.ReadString() == "LDS" || discoveryServer })
		if !discoveryServer && len(urls) < maxApplications {
			urls = append(urls, url)
		}
	})
	return urls
}

// endpoints reads EndpointDescriptions (OPC 10000-4, 7.14): whose they are, and their security policies.
func (r *reader) endpoints() (self servers.Application, policies []string) {
	r.each(4+leastApplication+4+4+4+4+4+1, func() {
		r.ReadString() // its URL
		self = r.application()
		self.URLs = nil
		r.ReadBytes()  // certificate
		r.ReadUint32() // mode
		policy := r.text()
		r.each(4+4+4+4+4, func() { // who may use it
			r.ReadString()
			r.ReadUint32()
			r.ReadString()
			r.ReadString()
			r.ReadString()
		})
		r.ReadString() // of the transport
		r.ReadByte()   // level
		policy = policy[strings.LastIndex(policy, "#")+1:]
		if len(policies) < maxPolicies && len(policy) < maxPolicy {
			policies = append(policies, policy)
		}
	})
	return self, policies
}
