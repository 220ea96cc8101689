package udevdb_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"akri.sh/libs/details/udev/rules"
	"akri.sh/libs/handler"
	"akri.sh/services/handler-udev/internal/discovery"
	"akri.sh/services/handler-udev/internal/udevdb"
)

// listed is a list of devices as a Database.
type listed []rules.Device

func (l listed) Devices(string) ([]rules.Device, error) { return l, nil }
func (l listed) Udevd() (running, busy bool)            { return false, false }

func TestMistakesOfTestbed(t *testing.T) {
	root := testbed(t)
	if root == "" {
		return
	}
	testMistakes(t, &udevdb.Database{Root: root})
}

func TestMistakesOnThisNode(t *testing.T) { testMistakes(t, &udevdb.Database{}) }

// testMistakes makes a rule that matches a random device, and changes one or two characters of a
// value, so that nothing matches. Then the device comes first, and the corrected rule matches it.
func testMistakes(t *testing.T, database *udevdb.Database) {
	t.Helper()
	devices, err := database.Devices("")
	require.NoError(t, err)
	inventory := discovery.NewInventory(listed(devices), func(string, int, time.Duration) {}, func() {}, zap.NewNop())
	rapid.Check(t, func(t *rapid.T) {
		device := rapid.SampledFrom(devices).Draw(t, "device")
		condition := conditionOf(t, device)
		mistaken, edits := change(t, condition.value)
		if !condition.writable() || len(mistaken) < 4 || tooClose(devices, device, condition.key, mistaken, edits) {
			return
		}

		rule := fmt.Sprintf(`SUBSYSTEM=="%s", %s=="%s"`, device.Subsystem(), condition.key, mistaken)
		found, err := inventory.Explain(t.Context(), handler.Request{Details: "udevRules:\n- '" + rule + "'"})
		require.NoError(t, err)
		require.NotEmpty(t, found, rule)
		require.Equal(t, device.Subsystem(), found[0].GetKind(), rule)
		require.Equal(t, condition.value, found[0].GetMismatches()[0].GetFound()[0], rule)

		spec, err := discovery.ParseSpec(handler.Request{Details: found[0].GetCorrectedDetails()})
		require.NoError(t, err, rule)
		require.True(t, spec.Rules[0].Matches(device), "%s is corrected to %s", rule, &spec.Rules[0])
	})
}

// condition is a key of a rule, and its value for a device.
type condition struct{ key, value string }

// conditionOf returns a random condition that the device meets.
func conditionOf(t *rapid.T, device rules.Device) condition {
	conditions := []condition{{"KERNEL", device.Kernel()}, {"DEVPATH", device.Devpath()}, {"DRIVER", device.Driver()}}
	for _, name := range device.Attributes() {
		if name == "uevent" {
			continue
		}
		if value, _ := device.Attribute(name); value != "" {
			conditions = append(conditions, condition{"ATTR{" + name + "}", value})
		}
	}
	for _, name := range device.Properties() {
		conditions = append(conditions, condition{"ENV{" + name + "}", device.Property(name)})
	}
	return rapid.SampledFrom(conditions).Draw(t, "condition")
}

var ordinary = regexp.MustCompile(`^[A-Za-z0-9 .:/_=+-]{4,100}$`)

// writable reports whether a rule in a quoted string can have the value. White space at the end is
// ignored.
func (c condition) writable() bool {
	return ordinary.MatchString(c.value) && strings.TrimSpace(c.value) == c.value
}

// change replaces, inserts or removes one or two characters.
func change(t *rapid.T, value string) (changed string, edits int) {
	edits = rapid.IntRange(1, 2).Draw(t, "edits")
	for range edits {
		i := rapid.IntRange(0, max(0, len(value)-1)).Draw(t, "position")
		char := rapid.StringMatching(`[a-z0-9]`).Draw(t, "character")
		end := min(i+1, len(value))
		switch rapid.SampledFrom([]string{"replace", "insert", "remove"}).Draw(t, "edit") {
		case "replace":
			value = value[:i] + char + value[end:]
		case "insert":
			value = value[:i] + char + value[i:]
		default:
			value = value[:i] + value[end:]
		}
	}
	return value, edits
}

// tooClose reports whether another value is about as close to the mistaken one, or equal to it.
func tooClose(devices []rules.Device, device rules.Device, key, mistaken string, edits int) bool {
	source, err := rules.ParseSource(key)
	if err != nil {
		return true
	}
	for _, other := range devices {
		value := source.Read(other)
		if value == mistaken {
			return true
		}
		// A swap of two characters is one mistake for the handler, and two edits here.
		if other.Subsystem() == device.Subsystem() && value != source.Read(device) && levenshtein(value, mistaken) <= 2*edits+1 {
			return true
		}
	}
	return false
}

// levenshtein returns the number of characters to replace, insert or remove, without regard to
// case.
func levenshtein(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
