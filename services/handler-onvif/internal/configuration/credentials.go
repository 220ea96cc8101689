// Package configuration reads the credentials in the discoveryProperties of a Configuration.
package configuration

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"akri.sh/libs/onvif"
)

// Names of properties in the schema of upstream Akri.
const (
	listProperty          = "device_credential_list"
	referenceListProperty = "device_credential_ref_list"
	usernamePrefix        = "username_"
	passwordPrefix        = "password_"
	defaultKey            = "default"
)

// Credentials maps the lower-case UUID of a camera, or "default", to its credentials.
type Credentials map[string]onvif.Credentials

// For returns the credentials of a camera or the default credentials, or nil if there are none.
func (c Credentials) For(uuid string) *onvif.Credentials {
	for _, key := range []string{strings.ToLower(uuid), defaultKey} {
		if credentials, ok := c[key]; ok {
			return &credentials
		}
	}
	return nil
}

// ParseCredentials parses discoveryProperties. Reference lists override lists, and single
// properties override both. The returned Credentials have all valid entries, also if the error
// has invalid ones.
func ParseCredentials(properties map[string][]byte) (Credentials, error) {
	credentials := Credentials{}
	return credentials, errors.Join(
		credentials.addLists(properties, listProperty, entry.literal),
		credentials.addLists(properties, referenceListProperty, entry.reference),
		credentials.addSingles(properties),
	)
}

// entry is an entry of a list or a reference list.
type entry struct {
	Username      *string `json:"username"`
	Password      string  `json:"password"`
	Base64Encoded bool    `json:"base64encoded"`
	UsernameRef   *string `json:"username_ref"`
	PasswordRef   string  `json:"password_ref"`
}

type resolver func(entry, map[string][]byte) (onvif.Credentials, error)

func (c Credentials) addLists(properties map[string][]byte, name string, resolve resolver) error {
	text, ok := properties[name]
	if !ok {
		return nil
	}
	var lists []string
	if err := json.Unmarshal(text, &lists); err != nil {
		return fmt.Errorf("%s: must be a JSON array of property names", name)
	}
	var problems []error
	for _, list := range lists {
		problems = append(problems, c.addList(properties, list, resolve))
	}
	return errors.Join(problems...)
}

func (c Credentials) addList(properties map[string][]byte, name string, resolve resolver) error {
	text, ok := properties[name]
	if !ok {
		return fmt.Errorf("%s: no such property", name)
	}
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(text, &entries); err != nil {
		return fmt.Errorf("%s: must be a JSON object with UUIDs as keys", name)
	}
	var problems []error
	for _, uuid := range slices.Sorted(maps.Keys(entries)) {
		credentials, err := resolveEntry(entries[uuid], properties, resolve)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %.100q: %w", name, uuid, err))
			continue
		}
		c[strings.ToLower(uuid)] = credentials
	}
	return errors.Join(problems...)
}

func resolveEntry(text []byte, properties map[string][]byte, resolve resolver) (onvif.Credentials, error) {
	var e entry
	if err := json.Unmarshal(text, &e); err != nil {
		return onvif.Credentials{}, errors.New("must be a JSON object with strings") // err may contain the password
	}
	return resolve(e, properties)
}

func (e entry) literal(map[string][]byte) (onvif.Credentials, error) {
	if e.Username == nil {
		return onvif.Credentials{}, errors.New("username is required")
	}
	password := e.Password
	if e.Base64Encoded {
		decoded, err := base64.StdEncoding.DecodeString(password)
		if err != nil || !utf8.Valid(decoded) {
			return onvif.Credentials{}, errors.New("password must be base64 of UTF-8 text") // without the password
		}
		password = string(decoded)
	}
	return onvif.Credentials{Username: *e.Username, Password: password}, nil
}

func (e entry) reference(properties map[string][]byte) (onvif.Credentials, error) {
	if e.UsernameRef == nil {
		return onvif.Credentials{}, errors.New("username_ref is required")
	}
	username, ok := properties[*e.UsernameRef]
	if !ok || !utf8.Valid(username) {
		return onvif.Credentials{}, errors.New("username_ref must name a property with UTF-8 text")
	}
	password := properties[e.PasswordRef]
	if !utf8.Valid(password) {
		return onvif.Credentials{}, errors.New("password_ref must name a property with UTF-8 text")
	}
	return onvif.Credentials{Username: string(username), Password: string(password)}, nil
}

// addSingles adds username_<uuid> and password_<uuid>, in which '_' replaces the '-' of the UUID.
func (c Credentials) addSingles(properties map[string][]byte) error {
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		key, found := strings.CutPrefix(name, usernamePrefix)
		if !found || key == "" {
			continue
		}
		username, password := properties[name], properties[passwordPrefix+key]
		if !utf8.Valid(username) || !utf8.Valid(password) {
			problems = append(problems, fmt.Errorf("%s: username and password must be UTF-8 text", name))
			continue
		}
		uuid := strings.ToLower(strings.ReplaceAll(key, "_", "-"))
		c[uuid] = onvif.Credentials{Username: string(username), Password: string(password)}
	}
	return errors.Join(problems...)
}
