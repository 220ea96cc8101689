// Package flags fills the Config of a service from defaults, environment and arguments. What flags there are is said by tags on
// the fields of the Config; pflag does the rest.
//
// It is here because libraries that do all of it find methods by a name which the linker cannot know: then every method of every
// type stays in the program, a sixth of each and more of those that speak to Kubernetes, in memory on each node.
//
//	help:"..."         what the flag is for
//	name:"..."         its name, if not that of the field (NodeName: --node-name)
//	default:"..."      value if nobody gives one; without it, what the field has
//	env:"A,B"          variables that give the value, the first that is set; without it AKRI_<NAME>
//	enum:"a,b"         all values that are allowed
//	placeholder:"..."  what help calls the value
//	required:""        somebody must give a value
//	prefix:"..."       on a struct: goes before the names of the flags in it
//	flag:"-"           not a flag
package flags

import (
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/pflag"
)

// Set is the flags of a program.
type Set struct {
	*pflag.FlagSet

	variables map[string][]string // by name of the flag
	required  []string
}

// New declares the flags of config, a pointer to a struct. Values are there after Parse.
func New(program string, config any) *Set {
	s := &Set{FlagSet: pflag.NewFlagSet(program, pflag.ContinueOnError), variables: map[string][]string{}}
	s.SortFlags = false
	s.declare(reflect.ValueOf(config).Elem(), "")
	return s
}

func (s *Set) declare(config reflect.Value, prefix string) {
	for i := range config.NumField() {
		field, value := config.Type().Field(i), config.Field(i)
		switch {
		case field.Tag.Get("flag") == "-":
		case field.Type.Kind() == reflect.Struct:
			s.declare(value, prefix+field.Tag.Get("prefix"))
		default:
			s.add(prefix+name(field), value.Addr().Interface(), field.Tag)
		}
	}
}

// name is that of a flag: NodeName is node-name.
func name(field reflect.StructField) string {
	if given := field.Tag.Get("name"); given != "" {
		return given
	}
	var kebab strings.Builder
	for i, letter := range field.Name {
		if i > 0 && unicode.IsUpper(letter) {
			kebab.WriteByte('-')
		}
		kebab.WriteRune(unicode.ToLower(letter))
	}
	return kebab.String()
}

func (s *Set) add(name string, target any, tag reflect.StructTag) {
	s.bind(name, target, tag.Get("help"))
	flag := s.Lookup(name)
	if preset, is := tag.Lookup("default"); is {
		if err := setDefault(flag, preset); err != nil {
			panic(fmt.Sprintf("default of flag %s: %v", name, err))
		}
	}
	described := value{Value: flag.Value, placeholder: tag.Get("placeholder")}
	if allowed := tag.Get("enum"); allowed != "" {
		described.allowed = strings.Split(allowed, ",")
		flag.Usage += " One of " + strings.Join(described.allowed, ", ") + "."
	}
	flag.Value = described

	variables := []string{"AKRI_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))}
	if given := tag.Get("env"); given != "" {
		variables = strings.Split(given, ",")
	}
	s.variables[name] = variables
	flag.Usage += " [$" + strings.Join(variables, ", $") + "]"
	if _, is := tag.Lookup("required"); is {
		s.required = append(s.required, name)
	}
}

// bind declares a flag of the type of its field.
func (s *Set) bind(name string, target any, usage string) {
	switch target := target.(type) {
	case *string:
		s.StringVar(target, name, *target, usage)
	case *bool:
		s.BoolVar(target, name, *target, usage)
	case *int:
		s.IntVar(target, name, *target, usage)
	case *uint16:
		s.Uint16Var(target, name, *target, usage)
	case *time.Duration:
		s.DurationVar(target, name, *target, usage)
	case *fs.FileMode:
		s.Uint32Var((*uint32)(target), name, uint32(*target), usage)
	case *[]string:
		s.StringSliceVar(target, name, *target, usage)
	default:
		panic(fmt.Sprintf("flag %s: no flags of type %T", name, target))
	}
}

func setDefault(flag *pflag.Flag, text string) error {
	flag.DefValue = text
	if list, is := flag.Value.(pflag.SliceValue); is {
		return list.Replace(strings.Split(text, ",")) // a list that was Set is added to
	}
	return flag.Value.Set(text)
}

// value is one of pflag's, with what a tag says about it.
type value struct {
	pflag.Value

	placeholder string
	allowed     []string // empty: whatever parses
}

// Type is what help calls the value.
func (v value) Type() string {
	if v.placeholder != "" {
		return v.placeholder
	}
	return v.Value.Type()
}

func (v value) Set(text string) error {
	_, list := v.Value.(pflag.SliceValue)
	if len(v.allowed) > 0 && (!list || text != "") {
		for one := range strings.SplitSeq(text, ",") {
			if !slices.Contains(v.allowed, one) {
				return fmt.Errorf("%q: want one of %s", one, strings.Join(v.allowed, ", "))
			}
		}
	}
	return v.Value.Set(text)
}

// Parse gives each flag the value of its argument, or else of the first of its variables that is set.
func (s *Set) Parse(arguments []string) error {
	if err := s.FlagSet.Parse(arguments); err != nil {
		return err
	}
	if extra := s.Args(); len(extra) > 0 {
		return fmt.Errorf("%q: want nothing but flags", extra[0])
	}
	var problem error
	s.VisitAll(func(flag *pflag.Flag) {
		if problem == nil && !flag.Changed {
			problem = s.fromEnvironment(flag)
		}
	})
	return problem
}

func (s *Set) fromEnvironment(flag *pflag.Flag) error {
	for _, variable := range s.variables[flag.Name] {
		if text, is := os.LookupEnv(variable); is {
			if err := flag.Value.Set(text); err != nil {
				return fmt.Errorf("invalid value %q of $%s for --%s: %w", text, variable, flag.Name, err)
			}
			return nil
		}
	}
	if slices.Contains(s.required, flag.Name) {
		return fmt.Errorf("--%s: required, as a flag or as $%s", flag.Name, strings.Join(s.variables[flag.Name], " or $"))
	}
	return nil
}
