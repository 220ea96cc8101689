package definition

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Mode holds Unix permission bits with the set-id and sticky bits. In YAML it is a quoted octal
// number, because YAML reads 0755 and 755 without quotes as different numbers.
type Mode uint32

// UnmarshalJSON reads a quoted octal number.
func (m *Mode) UnmarshalJSON(text []byte) error {
	var octal string
	if err := json.Unmarshal(text, &octal); err != nil {
		return fmt.Errorf("mode: must be a quoted octal number like \"0755\", not %s", text)
	}
	bits, err := strconv.ParseUint(octal, 8, 12)
	if err != nil {
		return fmt.Errorf("mode: must be an octal number like \"0755\", not %q", octal)
	}
	*m = Mode(bits)
	return nil
}
