// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// normaliser makes alike what differs by nature between two backups: generated names, times, versions, the server's
// namespace.
type normaliser struct {
	words     *strings.Replacer
	namespace string
}

// wordNamespace stands for the namespace of either server.
const wordNamespace = "<velero>"

var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)

func replacerOf(words map[string]string) *strings.Replacer {
	keys := slices.SortedFunc(maps.Keys(words), func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	pairs := make([]string, 0, 2*len(keys))
	for _, key := range keys {
		pairs = append(pairs, key, words[key])
	}
	return strings.NewReplacer(pairs...)
}

func (n normaliser) text(in string) string {
	in = n.words.Replace(in)
	in = times.ReplaceAllString(in, "<time>")
	in = strings.ReplaceAll(in, n.namespace, wordNamespace)
	return in
}

// volatile are the fields of metadata that every write changes.
var volatile = []string{"managedFields", "generation"}

// tree normalises all texts, keys included.
func (n normaliser) tree(in any) any {
	switch in := in.(type) {
	case string:
		return n.text(in)
	case Sequence:
		out := make(Sequence, len(in))
		for i, one := range in {
			out[i] = n.text(one)
		}
		return out
	case Unordered:
		out := make([]any, len(in))
		for i, one := range in {
			out[i] = n.tree(one)
		}
		slices.SortStableFunc(out, func(a, b any) int { return strings.Compare(show(a), show(b)) })
		return out
	case []any:
		out := make([]any, len(in))
		for i, one := range in {
			out[i] = n.tree(one)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(in))
		for key, value := range in {
			switch key {
			case "metadata":
				value = metadata(value)
			case "resourceVersion", "creationTime": // the latter of a VolumeSnapshotContent, a number of nanoseconds
				value = "<" + key + ">"
			}
			out[n.text(key)] = n.tree(value)
		}
		return out
	}
	return in
}

// metadata takes the volatile fields out; that managedFields are there is kept.
func metadata(value any) any {
	fields, ok := value.(map[string]any)
	if !ok {
		return value
	}
	out := maps.Clone(fields)
	for _, field := range volatile {
		if _, ok := out[field]; ok {
			out[field] = "<" + field + ">"
		}
	}
	return out
}
