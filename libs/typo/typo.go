// Package typo compares what a user wrote with a value that exists: how many characters differ, and
// how the text has to be changed. The text can have wildcards, so that zrm* is one character away
// from zram0, and becomes zram*.
package typo

import (
	"math"
	"unicode"
)

// Element is a character or a wildcard of a text.
type Element struct {
	// Text is the element as the user wrote it.
	Text string
	// Char is the character that the element matches. It is not used for wildcards.
	Char rune
	// Any is set for a wildcard of one character. It reports whether the wildcard matches it.
	Any func(rune) bool
	// Many is true for a wildcard of any number of characters.
	Many bool
}

func (e Element) literal() bool { return e.Any == nil && !e.Many }

// Literal returns the elements of a text without wildcards.
func Literal(text string) []Element {
	var elements []Element
	for _, char := range text {
		elements = append(elements, Element{Text: string(char), Char: char})
	}
	return elements
}

// Change is what happened to an element of a correction.
type Change int

const (
	// Kept is an element as the user wrote it.
	Kept Change = iota
	// Replaced is a character of the value instead of an element.
	Replaced
	// Inserted is a character of the value that the text does not have.
	Inserted
)

// Corrected is an element of a correction. Only its Char is set if it was replaced or inserted.
type Corrected struct {
	Element

	Change Change
}

// maxLength limits the time and the memory of a comparison, in characters. Longer texts and values
// have nothing in common.
const maxLength = 256

// Distance returns the number of characters to insert, remove, replace or swap with the next one
// until the text matches the value. If only upper and lower case differ, it is 1.
func Distance(text []Element, value string) int {
	chars := []rune(value)
	if len(text) > maxLength || len(chars) > maxLength {
		return max(len(text), len(chars))
	}
	return newTable(text, chars).distance()
}

// Correct returns the text with the fewest changes after which it matches the value. Of several
// such texts, it is the one whose wildcards match the fewest characters. It returns nil if one of
// them is too long.
func Correct(text []Element, value string) []Corrected {
	chars := []rune(value)
	if len(text) > maxLength || len(chars) > maxLength {
		return nil
	}
	return newTable(text, chars).corrected()
}

// maxDistance is the distance of similar values of any length, because long ones, such as paths,
// begin with the same characters.
const maxDistance = 5

// Similar reports whether a distance is so small that a user may have meant the value: at most a
// third of the characters of the text, or two of at least four. It is one of at least two if the
// text matches any number of characters, because few characters are left to compare.
func Similar(distance int, text []Element) bool {
	length, few := 0, 2
	for _, e := range text {
		if e.Many {
			few = 1
		} else {
			length++
		}
	}
	return distance <= max(min(length/3, maxDistance), min(length/2, few))
}

// Weights of comparisons that have no similar value: a value that is Far, and one that is Absent.
const (
	Far    = 1000
	Absent = 100 * Far
)

// Weight orders comparisons: the closest has the lowest. It is the distance of similar values.
// Others are compared by the part of the text that differs, because they can be of different kinds.
func Weight(distance int, text []Element) int {
	if Similar(distance, text) {
		return distance
	}
	return Far + min(Far, 100*distance/max(1, len(text)))
}

// Nearest returns the index of the text without wildcards that comes closest to one of the values,
// and the index of that value. Both are -1 if there are none.
func Nearest(texts, values []string) (text, value int) {
	text, value = -1, -1
	best := 0
	for i := range texts {
		wanted := Literal(texts[i])
		for j := range values {
			if weight := Weight(Distance(wanted, values[j]), wanted); text < 0 || weight < best {
				text, value, best = i, j, weight
			}
		}
	}
	return text, value
}

// Costs of a table. The characters that wildcards match, and changes of case, decide between texts
// with as many edits: there are fewer than an edit costs.
const (
	edit = 2 * maxLength
	part = 1
)

// table has the lowest cost of matching the first elements of a text with the first characters of a
// value, by their numbers.
type table struct {
	text  []Element
	value []rune
	costs []int32
}

func newTable(text []Element, value []rune) *table {
	t := &table{text, value, make([]int32, (len(text)+1)*(len(value)+1))}
	for i := range len(text) + 1 {
		for j := range len(value) + 1 {
			if i+j > 0 {
				*t.at(i, j) = t.best(i, j).cost
			}
		}
	}
	return t
}

func (t *table) at(elements, chars int) *int32 { return &t.costs[elements*(len(t.value)+1)+chars] }

// step leads to an entry of a table from that with fewer elements and characters.
type step struct {
	elements, chars int
	cost            int32
}

// best returns the last step to an entry. The first of several steps with the same cost counts.
func (t *table) best(i, j int) step {
	best := step{cost: math.MaxInt32}
	if i > 0 && t.text[i-1].Many {
		best = t.cheaper(best, i, j, step{1, 0, 0})
		if j > 0 {
			best = t.cheaper(best, i, j, step{0, 1, part})
		}
		return best
	}

	if i > 0 && j > 0 {
		best = t.cheaper(best, i, j, step{1, 1, t.replace(i-1, j-1)})
	}
	if t.swapped(i, j) {
		best = t.cheaper(best, i, j, step{2, 2, edit})
	}
	if j > 0 {
		best = t.cheaper(best, i, j, step{0, 1, edit})
	}
	if i > 0 {
		best = t.cheaper(best, i, j, step{1, 0, edit})
	}
	return best
}

// cheaper returns the step to an entry with the lower cost, with all steps before it.
func (t *table) cheaper(best step, i, j int, next step) step {
	next.cost += *t.at(i-next.elements, j-next.chars)
	if next.cost < best.cost {
		return next
	}
	return best
}

// replace returns the cost of matching an element with a character.
func (t *table) replace(i, j int) int32 {
	e, char := t.text[i], t.value[j]
	switch {
	case e.Any != nil && e.Any(char), e.literal() && e.Char == char:
		return 0
	case e.literal() && unicode.ToLower(e.Char) == unicode.ToLower(char):
		return part
	default:
		return edit
	}
}

// swapped reports whether the last two elements are the last two characters in the other order.
func (t *table) swapped(i, j int) bool {
	if i < 2 || j < 2 || !t.text[i-2].literal() || !t.text[i-1].literal() {
		return false
	}
	first, second := t.text[i-2].Char, t.text[i-1].Char
	return first != second && first == t.value[j-1] && second == t.value[j-2]
}

func (t *table) distance() int {
	if edits := *t.at(len(t.text), len(t.value)) / edit; edits > 0 {
		return int(edits)
	}
	for _, c := range t.corrected() {
		if c.Change != Kept {
			return 1
		}
	}
	return 0
}

// corrected follows the steps back from the end.
func (t *table) corrected() []Corrected {
	var reversed []Corrected
	for i, j := len(t.text), len(t.value); i+j > 0; {
		s := t.best(i, j)
		switch {
		case s.elements == 0 && i > 0 && t.text[i-1].Many: // the wildcard stays for the characters before
		case s.elements == 0:
			reversed = append(reversed, Corrected{Element{Char: t.value[j-1]}, Inserted})
		case s.chars == 0 && t.text[i-1].Many, s.chars == 1 && t.replace(i-1, j-1) == 0:
			reversed = append(reversed, Corrected{t.text[i-1], Kept})
		default:
			for k := range s.chars { // none for an element that is removed
				reversed = append(reversed, Corrected{Element{Char: t.value[j-1-k]}, Replaced})
			}
		}
		i, j = i-s.elements, j-s.chars
	}

	corrected := make([]Corrected, 0, len(reversed))
	for i := range reversed {
		corrected = append(corrected, reversed[len(reversed)-1-i])
	}
	return corrected
}
