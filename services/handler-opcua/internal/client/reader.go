package client

import (
	"fmt"
	"strings"

	"github.com/gopcua/opcua/ua"
)

const (
	nullLength = 0xffffffff // length of a null array
	// maxStringLength limits a string of a response in bytes. The rest is cut off.
	maxStringLength = 4 << 10
	// maxPolicies limits how many security policies of a server are used, and maxPolicyLength the
	// length of their names: together they become one device property.
	maxPolicies, maxPolicyLength = 64, 64
)

// Bits of the encoding mask of DiagnosticInfo (OPC 10000-6, 5.2.2.12): the fields that follow it.
const (
	diagnosticNumbers = 0x01 | 0x02 | 0x04 | 0x08 | 0x20
	diagnosticText    = 0x10
	diagnosticInner   = 0x40
)

// extensionHasBody are the bits of an ExtensionObject's encoding with a body (OPC 10000-6,
// 5.2.2.15).
const extensionHasBody = 0x01 | 0x02

// reader decodes responses. It allocates no more than it reads.
type reader struct {
	*ua.Buffer
	invalid error
}

func newReader(data []byte) *reader { return &reader{Buffer: ua.NewBuffer(data)} }

func (r *reader) err() error {
	if err := r.Error(); err != nil {
		return fmt.Errorf("read response: %w", err)
	}
	return r.invalid
}

func (r *reader) fail(err error) {
	if r.invalid == nil {
		r.invalid = err
	}
}

// array calls read for each element of an array. An element has at least minSize bytes.
func (r *reader) array(minSize int, read func()) {
	count := r.ReadUint32()
	if count == nullLength || r.err() != nil {
		return
	}
	if int64(count)*int64(minSize) > int64(r.Len()) {
		r.fail(fmt.Errorf("array of %d elements exceeds the remaining %d bytes of the response", count, r.Len()))
		return
	}
	for range count {
		if read(); r.err() != nil {
			return
		}
	}
}

// text reads a string that can become a device property.
func (r *reader) text() string {
	return validText(r.ReadString())
}

// validText replaces what is not UTF-8, because many servers send Latin-1, and cuts off what is too
// long.
func validText(text string) string {
	text = strings.ToValidUTF8(text[:min(len(text), maxStringLength)], "\uFFFD")
	return strings.ToValidUTF8(text[:min(len(text), maxStringLength)], "")
}

func (r *reader) texts() (texts []string) {
	r.array(4, func() { texts = append(texts, r.text()) })
	return texts
}

// header reads the type id and the ResponseHeader (OPC 10000-4, 7.33). It fails if the type is not
// the expected one or the status is not OK.
func (r *reader) header(expected uint16) {
	var id ua.ExpandedNodeID
	r.ReadStruct(&id)
	r.ReadTime()   // timestamp
	r.ReadUint32() // request handle
	status := ua.StatusCode(r.ReadUint32())
	r.skipDiagnosticInfo()
	r.texts() // string table
	var additional ua.ExpandedNodeID
	r.ReadStruct(&additional)
	if r.ReadByte()&extensionHasBody != 0 {
		r.ReadBytes()
	}
	switch {
	case r.err() != nil:
	case status != ua.StatusOK:
		r.fail(status)
	case id.NodeID.Namespace() != 0 || id.NodeID.IntID() != uint32(expected):
		r.fail(fmt.Errorf("response has type %v, must be %d", id.NodeID, expected))
	}
}

func (r *reader) skipDiagnosticInfo() {
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
func (r *reader) application() Application {
	var application Application
	application.URI = r.text()
	r.ReadString() // product URI
	var name ua.LocalizedText
	r.ReadStruct(&name)
	application.Name = validText(name.Text)
	application.Type = ua.ApplicationType(r.ReadUint32())
	r.ReadString() // gateway server URI
	r.ReadString() // discovery profile URI
	application.URLs = r.texts()
	return application
}

// minApplicationSize is the size of an empty ApplicationDescription.
const minApplicationSize = 4 + 4 + 1 + 4 + 4 + 4 + 4

func (r *reader) applications() (applications []Application) {
	r.array(minApplicationSize, func() {
		if application := r.application(); len(applications) < maxApplications {
			applications = append(applications, application)
		}
	})
	return applications
}

// serversOnNetwork reads the URLs of a list of ServerOnNetwork (OPC 10000-4, 5.4.3). It leaves out
// discovery servers.
func (r *reader) serversOnNetwork() (urls []string) {
	r.ReadTime() // last counter reset time
	r.array(4+4+4+4, func() {
		r.ReadUint32() // record id
		r.ReadString() // server name
		url := r.text()
		discoveryServer := false
		r.array(4, func() { discoveryServer = r.ReadString() == "LDS" || discoveryServer })
		if !discoveryServer && len(urls) < maxApplications {
			urls = append(urls, url)
		}
	})
	return urls
}

// endpoints reads a list of EndpointDescription (OPC 10000-4, 7.14): their server and their
// security policies.
func (r *reader) endpoints() (self Application, policies []string) {
	r.array(4+minApplicationSize+4+4+4+4+4+1, func() {
		r.ReadString() // endpoint URL
		self = r.application()
		self.URLs = nil
		r.ReadBytes()  // server certificate
		r.ReadUint32() // security mode
		policy := r.text()
		r.array(4+4+4+4+4, func() { // user identity tokens
			r.ReadString()
			r.ReadUint32()
			r.ReadString()
			r.ReadString()
			r.ReadString()
		})
		r.ReadString() // transport profile URI
		r.ReadByte()   // security level
		policy = policy[strings.LastIndex(policy, "#")+1:]
		if len(policies) < maxPolicies && len(policy) < maxPolicyLength {
			policies = append(policies, policy)
		}
	})
	return self, policies
}
