package client

import (
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"
	"github.com/stretchr/testify/require"
)

// answers of every kind, as the library writes them.
func answers(t testing.TB) map[string][]byte {
	t.Helper()
	server := &ua.ApplicationDescription{
		ApplicationURI: "urn:plc", ProductURI: "p", ApplicationName: ua.NewLocalizedText("plc"), ApplicationType: ua.ApplicationTypeClientAndServer,
		GatewayServerURI: "g", DiscoveryProfileURI: "d", DiscoveryURLs: []string{"opc.tcp://plc:4840", "https://plc"},
	}
	found := map[string][]byte{}
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
		found[name] = append(id, body...)
	}
	return found
}

func TestAnswersAsTheLibraryWritesThem(t *testing.T) {
	answers := answers(t)
	r := newReader(answers["servers"])
	r.header(ua.ServiceTypeID(&ua.FindServersResponse{}))
	known := r.applications()
	require.NoError(t, r.err())
	require.Zero(t, r.Len())
	require.Len(t, known, 2)
	require.Equal(t, known[0], known[1])
	require.Equal(t, "urn:plc plc", known[0].URI+" "+known[0].Name)
	require.EqualValues(t, ua.ApplicationTypeClientAndServer, known[0].Type)
	require.Equal(t, []string{"opc.tcp://plc:4840", "https://plc"}, known[0].URLs)

	r = newReader(answers["network"])
	r.header(ua.ServiceTypeID(&ua.FindServersOnNetworkResponse{}))
	require.Equal(t, []string{"opc.tcp://plc:4840"}, r.onNetwork(), "a discovery server is none that was heard of")
	require.NoError(t, r.err())
	require.Zero(t, r.Len())

	r = newReader(answers["endpoints"])
	r.header(ua.ServiceTypeID(&ua.GetEndpointsResponse{}))
	self, policies := r.endpoints()
	require.NoError(t, r.err())
	require.Zero(t, r.Len())
	require.Equal(t, "urn:plc", self.URI)
	require.Equal(t, []string{"Basic256Sha256"}, policies)

	r = newReader(answers["fault"])
	r.header(ua.ServiceTypeID(&ua.FindServersResponse{}))
	require.ErrorIs(t, r.err(), ua.StatusBadServiceUnsupported)
}

func TestDiagnosticsWithoutEnd(t *testing.T) {
	data := make([]byte, 1<<20)
	for i := range data {
		data[i] = diagnosticInner
	}
	r := newReader(data)
	r.diagnostics()
	require.ErrorContains(t, r.err(), "unexpected EOF")
}

func FuzzAnswers(f *testing.F) {
	for _, answer := range answers(f) {
		f.Add(answer)
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		r := newReader(answer)
		r.header(ua.ServiceTypeID(&ua.FindServersResponse{}))
		for _, one := range r.applications() {
			require.LessOrEqual(t, len(one.URI), maxText)
		}
		r = newReader(answer)
		r.header(ua.ServiceTypeID(&ua.FindServersOnNetworkResponse{}))
		require.LessOrEqual(t, len(r.onNetwork()), maxApplications)
		r = newReader(answer)
		r.header(ua.ServiceTypeID(&ua.GetEndpointsResponse{}))
		_, policies := r.endpoints()
		require.LessOrEqual(t, len(policies), maxPolicies)
	})
}
