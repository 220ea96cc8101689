package opcua

import "akri.sh/libs/handler"

// URLs are those that details ask for.
func URLs(details string) ([]string, error) {
	wanted, err := parse(handler.Request{Details: details})
	return wanted.urls, err
}
