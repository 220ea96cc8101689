package camerabroker_test

import (
	"fmt"
	"os"
	"testing"

	camerabroker "akri.sh/deploy/samples/camera-broker"
)

// decodeArgument makes the test binary the process that decodes.
const decodeArgument = "decode"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == decodeArgument {
		if err := camerabroker.Decode(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}
