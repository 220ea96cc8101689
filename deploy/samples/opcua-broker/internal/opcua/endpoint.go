package opcua

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gopcua/opcua"
	"github.com/gopcua/opcua/ua"
	"github.com/gopcua/opcua/uapolicy"
	"github.com/gopcua/opcua/uasc"
)

// applicationURI is that of a broker without a certificate.
const applicationURI = "urn:akri.sh:opcua-broker"

// policies are used if the settings name none, the best first. Older ones are used only by name.
var policies = []string{"Aes256_Sha256_RsaPss", "Basic256Sha256", "Aes128_Sha256_RsaOaep"}

// choose returns the endpoint that the settings select.
func (s Settings) choose(endpoints []*ua.EndpointDescription) (*ua.EndpointDescription, error) {
	accepted := policies
	switch {
	case s.Mode == "None":
		accepted = []string{"None"}
	case s.Policy != "":
		accepted = []string{s.Policy}
	}
	var best *ua.EndpointDescription
	rank := len(accepted)
	var offered []string
	for _, endpoint := range endpoints {
		// A server may have endpoints of other transports, such as HTTPS.
		if endpoint == nil || endpoint.Server == nil || !strings.HasPrefix(endpoint.EndpointURL, "opc.tcp:") {
			continue
		}
		mode, policy := nameOf(endpoint)
		offered = append(offered, mode+" with "+policy)
		if i := slices.Index(accepted, policy); mode == s.Mode && i >= 0 && i < rank {
			best, rank = endpoint, i
		}
	}
	if best == nil {
		slices.Sort(offered)
		return nil, fmt.Errorf("OPCUA_SECURITY_MODE=%s: the server has no endpoint with this mode and the policy %s, it has: %s",
			s.Mode, strings.Join(accepted, " or "), strings.Join(slices.Compact(offered), ", "))
	}
	return best, nil
}

func nameOf(endpoint *ua.EndpointDescription) (mode, policy string) {
	return strings.TrimPrefix(endpoint.SecurityMode.String(), "MessageSecurityMode"),
		strings.TrimPrefix(endpoint.SecurityPolicyURI, ua.SecurityPolicyURIPrefix)
}

// security is how a session is secured.
type security struct {
	channel []opcua.Option
	session *uasc.SessionConfig
}

// secure returns the security of a session at an endpoint, after it has checked the certificate of
// the server and that the password stays secret.
func (s Settings) secure(endpoint *ua.EndpointDescription, now time.Time) (security, error) {
	session := opcua.DefaultSessionConfig()
	session.SessionTimeout = sessionTimeout
	session.ClientDescription.ApplicationURI = applicationURI
	session.ClientDescription.ProductURI = applicationURI
	session.ClientDescription.ApplicationName = ua.NewLocalizedText("Akri opcua-broker")

	var channel []opcua.Option
	if s.Mode != "None" {
		server, err := s.PKI.Verify(endpoint.ServerCertificate, now)
		if err != nil {
			return security{}, err
		}
		// An authority may issue certificates to many servers. Each has the URI of one.
		for _, uri := range []string{endpoint.Server.ApplicationURI, s.ApplicationURI} {
			if uris := urisOf(server); uri != "" && !slices.Contains(uris, uri) {
				return security{}, fmt.Errorf("the certificate of the server is that of %q, not of %q", uris, uri)
			}
		}
		identity, err := s.PKI.Identity()
		if err != nil {
			return security{}, err
		}
		if uris := urisOf(identity.Certificate); len(uris) > 0 {
			session.ClientDescription.ApplicationURI = uris[0] // servers compare it with the certificate
		}
		pinned := *endpoint
		pinned.ServerCertificate = server.Raw // without those of its authorities
		endpoint = &pinned
		channel = append(channel, opcua.Certificate(identity.Certificate.Raw), opcua.PrivateKey(identity.Key))
	}
	channel = append(channel, opcua.SecurityFromEndpoint(endpoint, ua.UserTokenTypeAnonymous))
	return security{channel, session}, s.authenticate(session, endpoint)
}

func urisOf(certificate *x509.Certificate) (uris []string) {
	for _, uri := range certificate.URIs {
		uris = append(uris, uri.String())
	}
	return uris
}

// authenticate adds the user to a session.
func (s Settings) authenticate(session *uasc.SessionConfig, endpoint *ua.EndpointDescription) error {
	if s.Username == "" {
		policy := tokenPolicy(endpoint, ua.UserTokenTypeAnonymous)
		if policy == nil {
			return errors.New("the server does not accept sessions without a user: set OPCUA_USERNAME and OPCUA_PASSWORD")
		}
		session.UserIdentityToken = &ua.AnonymousIdentityToken{PolicyID: policy.PolicyID}
		return nil
	}
	policy := tokenPolicy(endpoint, ua.UserTokenTypeUserName)
	if policy == nil {
		return errors.New("OPCUA_USERNAME: the server does not accept user names at this endpoint")
	}
	// The policy of the token decides how the password is encrypted, or else that of the endpoint.
	// A certificate that was not verified protects nothing.
	plain := s.Mode == "None" || (s.Mode == "Sign" && policy.SecurityPolicyURI == ua.SecurityPolicyURINone)
	if plain && !s.AllowPlainText {
		return fmt.Errorf("OPCUA_SECURITY_MODE=%s: the password would be sent without encryption for this server alone: use SignAndEncrypt, or set OPCUA_ALLOW_PLAIN_TEXT=true", s.Mode)
	}
	password, err := s.Password()
	if err != nil {
		return err
	}
	session.UserIdentityToken = &ua.UserNameIdentityToken{PolicyID: policy.PolicyID, UserName: s.Username}
	session.AuthPassword = password
	session.AuthPolicyURI = policy.SecurityPolicyURI
	if session.AuthPolicyURI == "" {
		session.AuthPolicyURI = endpoint.SecurityPolicyURI
	}
	return nil
}

func tokenPolicy(endpoint *ua.EndpointDescription, kind ua.UserTokenType) *ua.UserTokenPolicy {
	for _, policy := range endpoint.UserIdentityTokens {
		if policy != nil && policy.TokenType == kind {
			return policy
		}
	}
	return nil
}

// Policies returns the names of the security policies of the modes Sign and SignAndEncrypt.
func Policies() (names []string) {
	for _, uri := range uapolicy.SupportedPolicies() {
		name := strings.TrimPrefix(uri, ua.SecurityPolicyURIPrefix)
		if name != "None" && !strings.HasPrefix(name, "PubSub") {
			names = append(names, name)
		}
	}
	return names
}

// Supported returns whether there is a security policy with a name.
func Supported(name string) bool { return slices.Contains(Policies(), name) }
