// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
)

// Key is the key of the ConfigMap under which the rules stand. There must be no other: a mistyped one would be overlooked.
const Key = "rules.yaml"

// FromConfigMap parses the rules of a ConfigMap.
func FromConfigMap(configMap *corev1.ConfigMap) (*Set, error) {
	where := fmt.Sprintf("ConfigMap %s/%s", configMap.Namespace, configMap.Name)
	for _, key := range slices.Concat(slices.Sorted(maps.Keys(configMap.Data)), slices.Sorted(maps.Keys(configMap.BinaryData))) {
		if _, text := configMap.Data[Key]; key != Key || !text {
			return nil, &ParseError{Where: where, Problems: []Problem{{
				Message: fmt.Sprintf("unknown key %q; the rules stand as text under the key %s, and nothing else does", key, Key),
			}}}
		}
	}
	return Parse(where+", "+Key, configMap.Data[Key])
}

// FromFile parses the rules in the text of a file: a list of rules, or the manifest of a ConfigMap with one. Places in
// errors are those in the file, also for a manifest.
func FromFile(name, text string) (*Set, error) {
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		return nil, notYAML(name, err)
	}
	if len(document.Content) == 0 || document.Content[0].Kind != yaml.MappingNode {
		return Parse(name, text)
	}
	var configMap struct {
		Kind       string               `yaml:"kind"`
		Data       map[string]yaml.Node `yaml:"data"`
		BinaryData map[string]string    `yaml:"binaryData"`
	}
	if err := document.Decode(&configMap); err != nil || configMap.Kind != "ConfigMap" {
		return nil, &ParseError{Where: name, Problems: []Problem{{
			Line: 1, Column: 1, Message: "this must be a list of rules, each beginning with \"- name: ...\", or the manifest of a ConfigMap",
		}}}
	}
	keys := slices.Concat(slices.Sorted(maps.Keys(configMap.Data)), slices.Sorted(maps.Keys(configMap.BinaryData)))
	if !slices.Equal(keys, []string{Key}) || len(configMap.BinaryData) > 0 {
		return nil, &ParseError{Where: name, Problems: []Problem{{
			Message: fmt.Sprintf("the ConfigMap has the keys %q; the rules stand as text under data, key %s, and nothing else does", keys, Key),
		}}}
	}
	block := configMap.Data[Key]
	set, err := Parse(name, block.Value)
	var wrong *ParseError
	if errors.As(err, &wrong) {
		p := &parser{lines: strings.Split(text, "\n")}
		for i := range wrong.Problems {
			if problem := &wrong.Problems[i]; problem.Line > 0 {
				problem.Line, problem.Column = p.place(&block, problem.Line, problem.Column)
			}
		}
	}
	return set, err
}
