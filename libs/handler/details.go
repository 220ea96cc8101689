package handler

import "akri.sh/libs/details"

// DecodeDetails decodes the YAML details of the request into a struct with `yaml` tags. Unknown
// keys, values of a wrong type and duplicate keys are errors; the returned error lists all of them
// with their lines and is marked Invalid. Empty details leave the struct unchanged, so callers can
// set defaults first.
func DecodeDetails(request Request, into any) error {
	return Invalid(details.Decode(request.Details, into))
}
