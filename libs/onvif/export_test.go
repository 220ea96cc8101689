package onvif

// Exported for tests that need fixed nonces or headers.
var (
	SecurityHeader = securityHeader
	Authorization  = authorization
)
