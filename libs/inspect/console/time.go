package console

import (
	"fmt"
	"html/template"
	"time"
)

const hoursOfDay = 24

// relativeTime shows how long ago a time was. console.js shows ages by the same rule.
func relativeTime(t time.Time) template.HTML { return timeElement(t, age(time.Since(t))) }

func absoluteTime(t time.Time) template.HTML { return timeElement(t, utc(t)) }

func utc(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }

// timeElement returns the element of a time, or nothing if the time is not known.
func timeElement(t time.Time, text string) template.HTML {
	if t.IsZero() {
		return ""
	}
	//nolint:gosec // G203: times and numbers need no escaping.
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s UTC">%s</time>`, t.UTC().Format(time.RFC3339), utc(t), text))
}

// age returns the age in its largest unit, from two hours and two days on in hours and days.
func age(d time.Duration) string {
	if d < 0 {
		return "in " + size(-d)
	}
	return size(d) + " ago"
}

func size(d time.Duration) string {
	switch {
	case d < time.Minute:
		return "less than 1 min"
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 2*hoursOfDay*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	default:
		return fmt.Sprintf("%d d", int(d.Hours())/hoursOfDay)
	}
}
