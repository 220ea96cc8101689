package definition

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
)

var userPattern = regexp.MustCompile(`^[0-9]+:[0-9]+$`)

// validate reports all problems, each with its YAML key.
func (d Definition) validate() error {
	errs := []error{
		requireText("description", d.Description),
		requireLocalPath("package", d.Package),
	}
	if !userPattern.MatchString(d.User) {
		errs = append(errs, fmt.Errorf("user: must be numeric, uid:gid, not %q", d.User))
	}
	for i, p := range d.Programs {
		key := fmt.Sprintf("programs[%d].", i)
		errs = append(errs, requireLocalPath(key+"module", p.Module), requireText(key+"package", p.Package), requireImagePath(key+"path", p.Path))
	}
	for i, f := range d.Files {
		errs = append(errs, f.validate(fmt.Sprintf("files[%d].", i)))
	}
	for i, dir := range d.Directories {
		errs = append(errs, requireImagePath(fmt.Sprintf("directories[%d].path", i), dir.Path))
	}
	return errors.Join(errs...)
}

func (f File) validate(key string) error {
	err := requireImagePath(key+"path", f.Path)
	if (f.Content == "") == (f.Source == "") {
		return errors.Join(err, fmt.Errorf("%scontent, %ssource: exactly one must be given", key, key))
	}
	if f.Source != "" {
		return errors.Join(err, requireLocalPath(key+"source", f.Source))
	}
	return err
}

func requireText(key, value string) error {
	if value == "" {
		return fmt.Errorf("%s: must be given", key)
	}
	return nil
}

// requireLocalPath requires a path inside the repository.
func requireLocalPath(key, value string) error {
	if !filepath.IsLocal(value) {
		return fmt.Errorf("%s: must be a path inside the repository, not %q", key, value)
	}
	return nil
}

// requireImagePath requires a clean absolute path.
func requireImagePath(key, value string) error {
	if !path.IsAbs(value) || path.Clean(value) != value || value == "/" {
		return fmt.Errorf("%s: must be an absolute path, not %q", key, value)
	}
	return nil
}
