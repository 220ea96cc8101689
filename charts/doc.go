// Package charts has the tests of the Helm charts beside it: that they lint, that what they render is what was agreed
// (golden files, `go test -update`), that misspelt values are refused, and that a real API server takes all of it.
package charts
