package main

import (
	"fmt"
	"os"
	"text/tabwriter"

	"akri.sh/tools/akri-image/internal/definition"
	"akri.sh/tools/akri-image/internal/program"
)

type listCommand struct {
	source
}

// Run prints a table, and below it what keeps this machine from building the rest.
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
		missing = append(missing, obstacles(def)...)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print table: %w", err)
	}
	for _, obstacle := range missing {
		fmt.Println(obstacle)
	}
	return nil
}

// obstacles says which of def's platforms this machine lacks a compiler for.
func obstacles(def definition.Definition) []error {
	if def.Cgo == nil {
		return nil
	}
	var found []error
	for _, platform := range def.Platforms {
		if _, err := program.Compiler(platform, *def.Cgo); err != nil {
			found = append(found, fmt.Errorf("%s: %w", def.Name, err))
		}
	}
	return found
}
