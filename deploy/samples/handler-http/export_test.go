package handlerhttp

// Exported for tests.
type Device = device

const MaxResponse = maxResponse

var Decode = decode
