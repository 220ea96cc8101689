// The shell in images that users exec into. Written in Go, it is built like
// everything else here: static, for every platform, without a distribution.
module akri.sh/deploy/images/shell

go 1.26.0

tool mvdan.cc/sh/v3/cmd/gosh

require (
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/term v0.45.0 // indirect
	mvdan.cc/sh/v3 v3.14.1 // indirect
)
