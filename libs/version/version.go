// Package version says which build this is.
package version

// Version is set when a release is linked.
var Version = "dev"
