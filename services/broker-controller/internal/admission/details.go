package admission

import (
	"errors"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation/field"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/details/validators"
)

// maxDetailsBytes limits the text of a handler, as discovery-operator does in the condition
// DetailsAccepted.
const maxDetailsBytes = 2 << 10

// details checks the details as their handler does.
func (v *validator) details(path *field.Path, handler akriv0.DiscoveryHandler) {
	err := validators.Validate(handler.Name, handler.DiscoveryDetails)
	if err == nil {
		return
	}
	message := err.Error()
	if len(message) > maxDetailsBytes {
		message = strings.ToValidUTF8(message[:maxDetailsBytes], "") + "..."
	}

	if v.denyDetails && !errors.Is(err, validators.ErrNotChecked) {
		v.refuse(field.Invalid(path, field.OmitValueType{}, message))
		return
	}
	// The API server drops a warning with control characters.
	for line := range strings.SplitSeq(message, "\n") {
		v.warn(path, "%s", strings.Map(blankControl, line))
	}
}

func blankControl(r rune) rune {
	if unicode.IsControl(r) {
		return ' '
	}
	return r
}
