// SPDX-License-Identifier: Apache-2.0

// Prints the chart's README: what a reader of a chart repository sees, and every value with its default and its comment
// in values.yaml. hack/generate runs it. (helm-docs would leave out the values of a section that has a comment of its
// own.)
package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"go.yaml.in/yaml/v3"
)

//go:embed readme.md.tmpl
var page string

// chart is what Chart.yaml says.
type chart struct {
	Name        string `yaml:"name"`
	Description string `yaml:"description"`
	KubeVersion string `yaml:"kubeVersion"`
}

// section is a top-level value: one that stands alone has a single row.
type section struct {
	Name, Text string
	Rows       []row
}

// row is one value. A part of a section that has a comment of its own is a row without default.
type row struct{ Name, Default, Text string }

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: chart-readme CHART")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "chart-readme: %v\n", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	var about chart
	if err := read(filepath.Join(dir, "Chart.yaml"), &about); err != nil {
		return err
	}
	var values yaml.Node
	if err := read(filepath.Join(dir, "values.yaml"), &values); err != nil {
		return err
	}
	form, err := template.New("readme").Parse(page)
	if err != nil {
		return fmt.Errorf("parse the page: %w", err)
	}
	return form.Execute(os.Stdout, struct {
		Chart    chart
		Sections []section
	}{about, sections(values.Content[0])})
}

func read(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		return fmt.Errorf("decode %s: %w", path, err)
	}
	return nil
}

func sections(root *yaml.Node) []section {
	var list []section
	for i := 0; i < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		s := section{Name: key.Value, Text: comment(key)}
		if isLeaf(value) {
			s.Rows = []row{{key.Value, text(value), ""}}
		} else {
			s.Rows = rows(key.Value, value)
		}
		list = append(list, s)
	}
	return list
}

func rows(prefix string, value *yaml.Node) []row {
	var list []row
	for i := 0; i < len(value.Content); i += 2 {
		key, inner := value.Content[i], value.Content[i+1]
		name := prefix + "." + key.Value
		if isLeaf(inner) {
			list = append(list, row{name, text(inner), comment(key)})
			continue
		}
		if c := comment(key); c != "" {
			list = append(list, row{Name: name, Text: c})
		}
		list = append(list, rows(name, inner)...)
	}
	return list
}

// isLeaf: a value that is given as a whole. A map whose keys are no names of ours, such as labels, is one.
func isLeaf(value *yaml.Node) bool {
	if value.Kind != yaml.MappingNode || len(value.Content) == 0 {
		return true
	}
	return strings.ContainsAny(value.Content[0].Value, "/_")
}

// text is a value in the form that --set-json takes.
func text(value *yaml.Node) string {
	var decoded any
	if err := value.Decode(&decoded); err != nil {
		return value.Value
	}
	encoded, err := json.Marshal(decoded)
	if err != nil {
		return value.Value
	}
	return string(encoded)
}

// comment is what stands above a key, as one line of a table.
func comment(key *yaml.Node) string {
	var words []string
	for line := range strings.Lines(key.HeadComment) {
		words = append(words, strings.Fields(strings.TrimPrefix(line, "#"))...)
	}
	return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(strings.Join(words, " "))
}
