// Package version holds the version of the build.
package version

// Version is set by the linker in releases.
var Version = "dev"
