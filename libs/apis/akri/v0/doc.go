// Package v0 contains the `akri.sh/v0` API: Configuration and Instance, the names derived from
// them, and the values of `deviceUsage`. The fields are those of upstream Akri 0.13 plus the status
// of Configurations. The CRD YAML is generated from this package.
//
// +kubebuilder:object:generate=true
// +groupName=akri.sh
package v0
