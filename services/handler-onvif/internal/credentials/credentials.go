// Package credentials finds the credentials of cameras in the discoveryProperties of a Configuration, in Akri's schema.
package credentials

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"akri.sh/services/handler-onvif/internal/soap"
)

const (
	listName      = "device_credential_list"
	referenceName = "device_credential_ref_list"
	userPrefix    = "username_"
	secretPrefix  = "password_"
	fallback      = "default"
)

// Set is the credentials by the UUID of the camera, which is in lower case.
type Set map[string]soap.Credentials

// Of returns the credentials of a camera: its own, else the default ones, else nil.
func (s Set) Of(uuid string) *soap.Credentials {
	for _, key := range []string{strings.ToLower(uuid), fallback} {
		if found, ok := s[key]; ok {
			return &found
		}
	}
	return nil
}

// Parse reads lists first, then references, then single properties; for one camera the later wins. Entries that cannot
// be read are left out, and the error says which: the others are good all the same.
func Parse(properties map[string][]byte) (Set, error) {
	set := Set{}
	return set, errors.Join(
		set.addLists(properties, listName, literal),
		set.addLists(properties, referenceName, reference),
		set.addSingles(properties),
	)
}

// entry is what both kinds of list hold for one camera.
type entry struct {
	Username      *string `json:"username"`
	Password      string  `json:"password"`
	Base64Encoded bool    `json:"base64encoded"`
	UsernameRef   *string `json:"username_ref"`
	PasswordRef   string  `json:"password_ref"`
}

type reading func(entry, map[string][]byte) (soap.Credentials, error)

func (s Set) addLists(properties map[string][]byte, name string, read reading) error {
	text, ok := properties[name]
	if !ok {
		return nil
	}
	var names []string
	if err := json.Unmarshal(text, &names); err != nil {
		return fmt.Errorf("%s: want a JSON array of names of properties", name)
	}
	var problems []error
	for _, list := range names {
		problems = append(problems, s.addList(properties, list, read))
	}
	return errors.Join(problems...)
}

func (s Set) addList(properties map[string][]byte, name string, read reading) error {
	text, ok := properties[name]
	if !ok {
		return fmt.Errorf("%s: no such property", name)
	}
	var cameras map[string]json.RawMessage
	if err := json.Unmarshal(text, &cameras); err != nil {
		return fmt.Errorf("%s: want a JSON object of cameras by UUID", name)
	}
	var problems []error
	for _, uuid := range slices.Sorted(maps.Keys(cameras)) {
		var e entry
		err := errors.New("not an object of strings")
		if json.Unmarshal(cameras[uuid], &e) == nil {
			var found soap.Credentials
			if found, err = read(e, properties); err == nil {
				s[strings.ToLower(uuid)] = found
			}
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %.100q: %w", name, uuid, err))
		}
	}
	return errors.Join(problems...)
}

func literal(e entry, _ map[string][]byte) (soap.Credentials, error) {
	if e.Username == nil {
		return soap.Credentials{}, errors.New("no username")
	}
	password := e.Password
	if e.Base64Encoded {
		decoded, err := base64.StdEncoding.DecodeString(password)
		if err != nil || !utf8.Valid(decoded) {
			return soap.Credentials{}, errors.New("password is not base64 of a text") // never the text itself
		}
		password = string(decoded)
	}
	return soap.Credentials{Username: *e.Username, Password: password}, nil
}

func reference(e entry, properties map[string][]byte) (soap.Credentials, error) {
	if e.UsernameRef == nil {
		return soap.Credentials{}, errors.New("no username_ref")
	}
	username, ok := properties[*e.UsernameRef]
	if !ok || !utf8.Valid(username) {
		return soap.Credentials{}, errors.New("username_ref names no property of a text")
	}
	password := properties[e.PasswordRef]
	if !utf8.Valid(password) {
		return soap.Credentials{}, errors.New("password_ref names no text")
	}
	return soap.Credentials{Username: string(username), Password: string(password)}, nil
}

// addSingles reads username_<uuid> and password_<uuid>, where '-' of the UUID is written as '_'.
func (s Set) addSingles(properties map[string][]byte) error {
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		key, found := strings.CutPrefix(name, userPrefix)
		if !found || key == "" {
			continue
		}
		username, password := properties[name], properties[secretPrefix+key]
		if !utf8.Valid(username) || !utf8.Valid(password) {
			problems = append(problems, fmt.Errorf("%s: not a text", name))
			continue
		}
		uuid := strings.ToLower(strings.ReplaceAll(key, "_", "-"))
		s[uuid] = soap.Credentials{Username: string(username), Password: string(password)}
	}
	return errors.Join(problems...)
}
