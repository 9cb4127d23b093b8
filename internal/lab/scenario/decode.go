// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Load reads the scenario in a file, fills in the defaults and checks it. The error names every mistake found, one to a
// line, each with file and line.
func Load(path string) (*Scenario, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the scenario: %w", err)
	}
	return Parse(path, data)
}

// Parse does what Load does with the content of a file; path is what the errors call it.
func Parse(path string, data []byte) (*Scenario, error) {
	root, err := parseNode(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var problems problemList
	problems.file = path
	checkKeys(root, scenarioType, "", &problems)
	if problems.any() {
		return nil, problems.err()
	}
	scenario := &Scenario{File: path}
	if err := root.Decode(scenario); err != nil {
		return nil, decodeError(path, err)
	}
	applyDefaults(scenario)
	validate(scenario, &locator{root: root}, &problems)
	if problems.any() {
		return nil, problems.err()
	}
	return scenario, nil
}

// parseNode returns the top-level mapping of the one document in data.
func parseNode(data []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	if err := decoder.Decode(&document); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("the file is empty; test/scenarios/README.md shows what a scenario looks like")
		}
		return nil, err
	}
	var second yaml.Node
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("line %d: one file holds one scenario, this is a second document", second.Line)
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: a scenario is a mapping with keys such as name, workload and backups", root.Line)
	}
	return root, nil
}

// decodeError puts the file in front of each message of the YAML decoder, which have their line already.
func decodeError(path string, err error) error {
	var typeError *yaml.TypeError
	if !errors.As(err, &typeError) {
		return fmt.Errorf("%s: %w", path, err)
	}
	list := problemList{file: path}
	for _, message := range typeError.Errors {
		list.messages = append(list.messages, strings.ReplaceAll(message, "scenario.", ""))
	}
	return list.err()
}

// problemList gathers mistakes, so that a user sees all of them at once.
type problemList struct {
	file     string
	messages []string
}

// add notes a mistake at a line; line 0 means that it has no place.
func (p *problemList) add(line int, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	if line > 0 {
		message = fmt.Sprintf("line %d: %s", line, message)
	}
	p.messages = append(p.messages, message)
}

func (p *problemList) any() bool { return len(p.messages) > 0 }

func (p *problemList) err() error {
	lines := make([]string, 0, len(p.messages))
	for _, message := range p.messages {
		lines = append(lines, p.file+": "+message)
	}
	return errors.New(strings.Join(lines, "\n"))
}

// MarshalJSON writes a command as the list that Velero's hook annotations take.
func (c Command) MarshalJSON() ([]byte, error) { return json.Marshal([]string(c)) }
