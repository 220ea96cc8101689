// Package debugecho has the discoveryDetails of the Discovery Handler debugEcho.
package debugecho

import (
	"errors"
	"slices"

	"akri.sh/libs/details"
)

// Details are the validated discoveryDetails.
type Details struct {
	// Descriptions of the devices, sorted and distinct.
	Descriptions []string `yaml:"descriptions"`
}

// Parse reads the discoveryDetails.
func Parse(text string) (Details, error) {
	var d Details
	if err := details.Decode(text, &d); err != nil {
		return Details{}, err
	}
	if d.Descriptions == nil {
		return Details{}, errors.New("discoveryDetails: descriptions: required")
	}
	if slices.Contains(d.Descriptions, "") {
		return Details{}, errors.New("discoveryDetails: descriptions: must not contain an empty string")
	}
	slices.Sort(d.Descriptions)
	d.Descriptions = slices.Compact(d.Descriptions)
	return d, nil
}
