package soap

// Exported for tests that need fixed nonces or headers.
var (
	NewTokenWithNonce = newToken
	Authorization     = authorization
)
