package client

import (
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"
	"github.com/stretchr/testify/require"
)

// responses returns one response of each kind, encoded by gopcua.
func responses(t testing.TB) map[string][]byte {
	t.Helper()
	server := &ua.ApplicationDescription{
		ApplicationURI: "urn:plc", ProductURI: "p", ApplicationName: ua.NewLocalizedText("plc"), ApplicationType: ua.ApplicationTypeClientAndServer,
		GatewayServerURI: "g", DiscoveryProfileURI: "d", DiscoveryURLs: []string{"opc.tcp://plc:4840", "https://plc"},
	}
	encoded := map[string][]byte{}
	for name, response := range map[string]ua.Response{
		"servers": &ua.FindServersResponse{Servers: []*ua.ApplicationDescription{server, server}},
		"network": &ua.FindServersOnNetworkResponse{LastCounterResetTime: time.Now(), Servers: []*ua.ServerOnNetwork{
			{RecordID: 1, ServerName: "plc", DiscoveryURL: "opc.tcp://plc:4840", ServerCapabilities: []string{"DA"}},
			{RecordID: 2, ServerName: "lds", DiscoveryURL: "opc.tcp://lds:4840", ServerCapabilities: []string{"LDS", "DA"}},
		}},
		"endpoints": &ua.GetEndpointsResponse{Endpoints: []*ua.EndpointDescription{{
			EndpointURL: "opc.tcp://plc:4840", Server: server, ServerCertificate: []byte("certificate"), SecurityMode: ua.MessageSecurityModeSign,
			SecurityPolicyURI: ua.SecurityPolicyURIBasic256Sha256, TransportProfileURI: "t", SecurityLevel: 7,
			UserIdentityTokens: []*ua.UserTokenPolicy{{PolicyID: "anonymous", IssuedTokenType: "i", IssuerEndpointURL: "u", SecurityPolicyURI: "s"}},
		}}},
		"fault": &ua.ServiceFault{},
	} {
		header := &ua.ResponseHeader{
			Timestamp: time.Now(), StringTable: []string{"a"}, AdditionalHeader: ua.NewExtensionObject(&ua.UserTokenPolicy{PolicyID: "extra"}),
			ServiceDiagnostics: &ua.DiagnosticInfo{
				EncodingMask: 0x7f, SymbolicID: 1, NamespaceURI: 2, Locale: 3, LocalizedText: 4, AdditionalInfo: "info", InnerStatusCode: 5,
				InnerDiagnosticInfo: &ua.DiagnosticInfo{EncodingMask: 0x10, AdditionalInfo: "inner"},
			},
		}
		if name == "fault" {
			header.ServiceResult = ua.StatusBadServiceUnsupported
		}
		response.SetHeader(header)
		id, err := ua.NewFourByteExpandedNodeID(0, ua.ServiceTypeID(response)).Encode()
		require.NoError(t, err)
		body, err := ua.Encode(response)
		require.NoError(t, err)
		encoded[name] = append(id, body...)
	}
	return encoded
}

func TestReaderDecodesResponsesOfGopcua(t *testing.T) {
	responses := responses(t)
	r := newReader(responses["servers"])
	r.header(ua.ServiceTypeID(&ua.FindServersResponse{}))
	applications := r.applications()
	require.NoError(t, r.err())
	require.Zero(t, r.Len())
	require.Len(t, applications, 2)
	require.Equal(t, applications[0], applications[1])
	require.Equal(t, "urn:plc plc", applications[0].URI+" "+applications[0].Name)
	require.EqualValues(t, ua.ApplicationTypeClientAndServer, applications[0].Type)
	require.Equal(t, []string{"opc.tcp://plc:4840", "https://plc"}, applications[0].URLs)

	r = newReader(responses["network"])
	r.header(ua.ServiceTypeID(&ua.FindServersOnNetworkResponse{}))
	require.Equal(t, []string{"opc.tcp://plc:4840"}, r.serversOnNetwork(), "without the discovery server")
	require.NoError(t, r.err())
	require.Zero(t, r.Len())

	r = newReader(responses["endpoints"])
	r.header(ua.ServiceTypeID(&ua.GetEndpointsResponse{}))
	self, policies := r.endpoints()
	require.NoError(t, r.err())
	require.Zero(t, r.Len())
	require.Equal(t, "urn:plc", self.URI)
	require.Equal(t, []string{"Basic256Sha256"}, policies)

	r = newReader(responses["fault"])
	r.header(ua.ServiceTypeID(&ua.FindServersResponse{}))
	require.ErrorIs(t, r.err(), ua.StatusBadServiceUnsupported)
}

func TestReaderEndsEndlessDiagnostics(t *testing.T) {
	data := make([]byte, 1<<20)
	for i := range data {
		data[i] = diagnosticInner
	}
	r := newReader(data)
	r.skipDiagnosticInfo()
	require.ErrorContains(t, r.err(), "unexpected EOF")
}

func FuzzReader(f *testing.F) {
	for _, response := range responses(f) {
		f.Add(response)
	}
	f.Fuzz(func(t *testing.T, response []byte) {
		r := newReader(response)
		r.header(ua.ServiceTypeID(&ua.FindServersResponse{}))
		for _, application := range r.applications() {
			require.LessOrEqual(t, len(application.URI), maxStringLength)
		}
		r = newReader(response)
		r.header(ua.ServiceTypeID(&ua.FindServersOnNetworkResponse{}))
		require.LessOrEqual(t, len(r.serversOnNetwork()), maxApplications)
		r = newReader(response)
		r.header(ua.ServiceTypeID(&ua.GetEndpointsResponse{}))
		_, policies := r.endpoints()
		require.LessOrEqual(t, len(policies), maxPolicies)
	})
}
