package soak

import (
	"math"
)

// point is a value at a time in hours.
type point struct{ hours, value float64 }

// line is a least-squares fit.
type line struct {
	// slope is the growth in an hour, t is slope divided by its standard error. increase is the
	// growth from the first to the last point.
	slope, t, mean, increase float64
	points                   int
}

// significant is the least t of a slope that counts. The values of a process that does not leak are
// not independent: memory follows the garbage collector, so neighboring values are alike, which
// makes the standard error too small. A run fits about a hundred series. With 30 points the
// probability of t > 4 is 0.02 % for independent noise, which leaves room for both.
const significant = 4

// minPoints is the least number of points whose slope is judged.
const minPoints = 10

// fit returns the least-squares line through the points. It needs three points.
func fit(points []point) (l line) {
	n := float64(len(points))
	var hours float64
	for _, p := range points {
		hours += p.hours / n
		l.mean += p.value / n
	}
	l.points = len(points)
	if len(points) < 3 {
		return l
	}
	var xx, xy float64
	for _, p := range points {
		xx += (p.hours - hours) * (p.hours - hours)
		xy += (p.hours - hours) * (p.value - l.mean)
	}
	if xx == 0 {
		return l
	}
	l.slope = xy / xx
	l.increase = l.slope * (points[len(points)-1].hours - points[0].hours)
	var residuals float64
	for _, p := range points {
		residual := p.value - l.mean - l.slope*(p.hours-hours)
		residuals += residual * residual
	}
	// With no residuals at all, any slope is significant: t is infinite, or not a number if the
	// slope is 0.
	if l.t = l.slope / math.Sqrt(residuals/(n-2)/xx); math.IsNaN(l.t) {
		l.t = 0
	}
	return l
}

// limit is the growth that a series may have.
type limit struct {
	// perHour is the allowed growth in an hour, share that from the first to the last point, as a
	// part of the mean. Growth must exceed both. Without the second, small changes of a short run
	// would be extrapolated.
	perHour, share float64
}

// grows reports whether a slope exceeds its limit.
func (l line) grows(limit limit) bool {
	return l.points >= minPoints && l.t > significant && l.slope > limit.perHour && l.increase > limit.share*l.mean
}
