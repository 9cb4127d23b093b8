// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Duration is a time span written like 2s, 150ms or 1m30s.
type Duration time.Duration

// UnmarshalYAML reads a duration; a bare number is refused because nobody can know its unit.
func (d *Duration) UnmarshalYAML(node *yaml.Node) error {
	value, err := time.ParseDuration(node.Value)
	if err != nil || node.Kind != yaml.ScalarNode {
		return fmt.Errorf("line %d: %q is not a duration: write a number with a unit, such as 2s, 150ms or 1m30s", node.Line, node.Value)
	}
	if value < 0 {
		return fmt.Errorf("line %d: the duration %s is negative", node.Line, node.Value)
	}
	*d = Duration(value)
	return nil
}

// Duration gives the value as the standard library's type.
func (d Duration) Duration() time.Duration { return time.Duration(d) }

// String is the standard notation, such as "1m30s".
func (d Duration) String() string { return time.Duration(d).String() }

// Command is a command and its arguments. In YAML it is a list, or one word.
type Command []string

// UnmarshalYAML accepts a list of strings, or a single string as a command without arguments.
func (c *Command) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		if node.Value == "" {
			return fmt.Errorf("line %d: the command is empty", node.Line)
		}
		*c = Command{node.Value}
		return nil
	}
	var words []string
	if err := node.Decode(&words); err != nil {
		return err
	}
	*c = words
	return nil
}

// String joins the words with blanks.
func (c Command) String() string { return strings.Join(c, " ") }

// UnmarshalYAML reads an expectation and remembers where it stands.
func (e *Expectation) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind != yaml.ScalarNode {
		return fmt.Errorf("line %d: an expectation is a CEL expression; put it in quotes when it holds a colon or begins with a bracket", node.Line)
	}
	e.Expression, e.Line, e.Column = node.Value, node.Line, node.Column
	return nil
}

// UnmarshalYAML reads the fields of a Velero BackupSpec by the names that they have in the API.
func (s *BackupSpec) UnmarshalYAML(node *yaml.Node) error {
	return decodeAPI(node, &s.BackupSpec)
}

// UnmarshalYAML reads the fields of a Velero RestoreSpec by the names that they have in the API.
func (s *RestoreSpec) UnmarshalYAML(node *yaml.Node) error {
	return decodeAPI(node, &s.RestoreSpec)
}

// UnmarshalYAML reads the recording plugin's behaviour.
func (p *Plugins) UnmarshalYAML(node *yaml.Node) error {
	return decodeAPI(node, &p.Behaviour)
}

// UnmarshalYAML reads an object; left to itself the decoder would give the mappings in it this type, too.
func (m *Manifest) UnmarshalYAML(node *yaml.Node) error {
	var plain map[string]any
	if err := node.Decode(&plain); err != nil {
		return err
	}
	*m = plain
	return nil
}

// decodeAPI goes by way of JSON, whose tags the API types carry.
func decodeAPI(node *yaml.Node, into any) error {
	var plain any
	if err := node.Decode(&plain); err != nil {
		return err
	}
	data, err := json.Marshal(plain)
	if err != nil {
		return fmt.Errorf("line %d: %w", node.Line, err)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("line %d: %s", node.Line, strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}
