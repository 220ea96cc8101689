package main

import (
	"fmt"
	"os"
	"text/tabwriter"

	"akri.sh/tools/akri-image/internal/binary"
	"akri.sh/tools/akri-image/internal/definition"
)

type listCommand struct {
	source
}

// Run prints a table and, below it, the compilers that this machine lacks.
func (c *listCommand) Run() error {
	defs, err := c.load()
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tPACKAGE\tUSER\tPLATFORMS")
	var missing []error
	for _, def := range defs {
		fmt.Fprintf(table, "%s\t%s\t%s\t%v\n", def.Name, def.Package, def.User, def.Platforms)
		missing = append(missing, missingCompilers(def)...)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print table: %w", err)
	}
	for _, err := range missing {
		fmt.Println(err)
	}
	return nil
}

// missingCompilers returns an error for each platform of the image that this machine cannot compile
// for.
func missingCompilers(def definition.Definition) []error {
	if def.Cgo == nil {
		return nil
	}
	var found []error
	for _, platform := range def.Platforms {
		if _, err := binary.Compiler(platform, *def.Cgo); err != nil {
			found = append(found, fmt.Errorf("%s: %w", def.Name, err))
		}
	}
	return found
}
