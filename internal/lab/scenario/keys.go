// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

var (
	scenarioType      = reflect.TypeFor[Scenario]()
	yamlUnmarshaler   = reflect.TypeFor[yaml.Unmarshaler]()
	backupSpecType    = reflect.TypeFor[BackupSpec]()
	restoreSpecType   = reflect.TypeFor[RestoreSpec]()
	pluginsType       = reflect.TypeFor[Plugins]()
	jsonUnmarshalType = reflect.TypeFor[interface{ UnmarshalJSON([]byte) error }]()
)

// checkKeys walks the YAML beside the type it will be decoded into and notes every key that the type has no field for.
// yaml.v3 can refuse unknown keys too, but knows neither the path nor the nearest known key, and sees nothing below
// types that read themselves.
func checkKeys(node *yaml.Node, t reflect.Type, path string, problems *problemList) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case backupSpecType, restoreSpecType, pluginsType:
		t = t.Field(0).Type
	default:
		if readsItself(t) {
			return
		}
	}
	switch {
	case t.Kind() == reflect.Struct && node.Kind == yaml.MappingNode:
		checkMapping(node, t, path, problems)
	case t.Kind() == reflect.Slice && node.Kind == yaml.SequenceNode:
		for i, element := range node.Content {
			checkKeys(element, t.Elem(), fmt.Sprintf("%s[%d]", path, i), problems)
		}
	case t.Kind() == reflect.Map && node.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			checkKeys(node.Content[i+1], t.Elem(), join(path, node.Content[i].Value), problems)
		}
	}
}

func checkMapping(node *yaml.Node, t reflect.Type, path string, problems *problemList) {
	fields := map[string]reflect.Type{}
	collectFields(t, fields)
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		field, known := fields[key.Value]
		switch {
		case seen[key.Value]:
			problems.add(key.Line, "%s is given twice", join(path, key.Value))
		case known:
			checkKeys(node.Content[i+1], field, join(path, key.Value), problems)
		default:
			problems.add(key.Line, "unknown key %q%s: %s", key.Value, in(path), suggestion(key.Value, fields))
		}
		seen[key.Value] = true
	}
}

func readsItself(t reflect.Type) bool {
	pointer := reflect.PointerTo(t)
	return pointer.Implements(yamlUnmarshaler) || pointer.Implements(jsonUnmarshalType)
}

// collectFields maps the names that a struct has in YAML, or in JSON for API types, to the types of its fields.
func collectFields(t reflect.Type, into map[string]reflect.Type) {
	for _, field := range reflect.VisibleFields(t) {
		if len(field.Index) > 1 {
			continue
		}
		tag, ok := field.Tag.Lookup("yaml")
		if !ok {
			tag = field.Tag.Get("json")
		}
		name, options, _ := strings.Cut(tag, ",")
		switch {
		case name == "-":
		case strings.Contains(options, "inline") && field.Type.Kind() == reflect.Struct:
			collectFields(field.Type, into)
		case name != "":
			into[name] = field.Type
		}
	}
}

// suggestion names the known key that looks most like the unknown one, or all of them when none does.
func suggestion(unknown string, fields map[string]reflect.Type) string {
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	best, distance := "", len(unknown)/2+1
	for _, name := range names {
		if d := editDistance(strings.ToLower(unknown), strings.ToLower(name)); d < distance {
			best, distance = name, d
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return "known are " + strings.Join(names, ", ")
}

// editDistance counts the insertions, deletions and replacements that turn one word into the other.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func in(path string) string {
	if path == "" {
		return ""
	}
	return " in " + path
}
