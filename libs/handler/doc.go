// Package handler is the SDK for Discovery Handlers. A handler is one function that returns the
// devices that match the details of a Configuration: Poll calls it at an interval; Watch lets it
// send a new list after each change.
//
// The package implements the rest of the contract of `v0.DiscoveryHandler`: it serves the handler,
// registers it and registers it again after a restart of the registrar, sends complete lists and
// skips repeated ones, and provides health checks and metrics.
package handler
