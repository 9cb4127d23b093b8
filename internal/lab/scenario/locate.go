// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"

	"go.yaml.in/yaml/v3"
)

// place is a path into the file, of keys (string) and positions in lists (int).
type place []any

// at extends the path.
func (p place) at(parts ...any) place {
	return append(append(place{}, p...), parts...)
}

// String is the path as error messages have it, such as "workload[0].pods[1].name".
func (p place) String() string {
	out := ""
	for _, part := range p {
		if index, ok := part.(int); ok {
			out += fmt.Sprintf("[%d]", index)
			continue
		}
		out = join(out, fmt.Sprint(part))
	}
	return out
}

// locator finds the line of a path in the file.
type locator struct {
	root *yaml.Node
}

// line gives the line of the deepest part of the path that is there, since a default has no line of its own.
func (l *locator) line(p place) int {
	node := l.root
	line := 0
	for _, part := range p {
		if node.Kind == yaml.AliasNode {
			node = node.Alias
		}
		next := child(node, part)
		if next == nil {
			break
		}
		node, line = next, next.Line
	}
	return line
}

func child(node *yaml.Node, part any) *yaml.Node {
	switch key := part.(type) {
	case int:
		if node.Kind == yaml.SequenceNode && key < len(node.Content) {
			return node.Content[key]
		}
	case string:
		for i := 0; i+1 < len(node.Content) && node.Kind == yaml.MappingNode; i += 2 {
			if node.Content[i].Value == key {
				return node.Content[i+1]
			}
		}
	}
	return nil
}
