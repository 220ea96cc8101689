package definition

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
)

var userPattern = regexp.MustCompile(`^[0-9]+:[0-9]+$`)

// validate reports everything wrong with d, each problem with its YAML key.
func (d Definition) validate() error {
	errs := []error{
		requireText("description", d.Description),
		requireFolder("package", d.Package),
	}
	if !userPattern.MatchString(d.User) {
		errs = append(errs, fmt.Errorf("user: must be numeric, uid:gid, not %q", d.User))
	}
	for i, p := range d.Programs {
		key := fmt.Sprintf("programs[%d].", i)
		errs = append(errs, requireFolder(key+"module", p.Module), requireText(key+"package", p.Package), requireTarget(key+"path", p.Path))
	}
	for i, f := range d.Files {
		errs = append(errs, f.validate(fmt.Sprintf("files[%d].", i)))
	}
	for i, dir := range d.Directories {
		errs = append(errs, requireTarget(fmt.Sprintf("directories[%d].path", i), dir.Path))
	}
	return errors.Join(errs...)
}

func (f File) validate(key string) error {
	err := requireTarget(key+"path", f.Path)
	if (f.Content == "") == (f.Source == "") {
		return errors.Join(err, fmt.Errorf("%scontent, %ssource: exactly one must be given", key, key))
	}
	if f.Source != "" {
		return errors.Join(err, requireFolder(key+"source", f.Source))
	}
	return err
}

func requireText(key, value string) error {
	if value == "" {
		return fmt.Errorf("%s: must be given", key)
	}
	return nil
}

// requireFolder wants a path inside the repository.
func requireFolder(key, value string) error {
	if !filepath.IsLocal(value) {
		return fmt.Errorf("%s: must be a path inside the repository, not %q", key, value)
	}
	return nil
}

// requireTarget wants a clean absolute path inside the image.
func requireTarget(key, value string) error {
	if !path.IsAbs(value) || path.Clean(value) != value || value == "/" {
		return fmt.Errorf("%s: must be an absolute path, not %q", key, value)
	}
	return nil
}
