// Package v0 holds the `akri.sh/v0` API: Configuration and Instance, the names derived from them,
// and the values of `deviceUsage`. The fields are those of Akri 0.13; Configuration status is
// additive. The CRD YAML is generated from here.
//
// +kubebuilder:object:generate=true
// +groupName=akri.sh
package v0
