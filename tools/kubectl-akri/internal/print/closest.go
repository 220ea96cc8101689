package print

import (
	"fmt"
	"io"
	"strings"

	"akri.sh/libs/trial"
)

// closest writes the devices that come close to matching, and the corrected discoveryDetails.
func closest(w io.Writer, indent string, groups []trial.Group) {
	for _, group := range groups {
		fmt.Fprintf(w, "%sclosest: %s\n", indent, group)
	}
	correction := trial.Correction(groups)
	if correction == nil {
		return
	}
	fmt.Fprintf(w, "%sTo match %s, use these discoveryDetails:\n", indent, correction.First())
	for line := range strings.Lines(correction.CorrectedDetails) {
		fmt.Fprintf(w, "%s  %s\n", indent, strings.TrimSuffix(line, "\n"))
	}
}
