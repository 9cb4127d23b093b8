// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

func observation(sections map[string]any) *Observation { return &Observation{Sections: sections} }

func TestCompare(t *testing.T) {
	cases := map[string]struct {
		stock, ours any
		want        []Difference
	}{
		"equal":          {stock: map[string]any{"a": 1.0}, ours: map[string]any{"a": 1.0}},
		"value":          {stock: map[string]any{"a": 1.0}, ours: map[string]any{"a": 2.0}, want: []Difference{{Where: "s > a", Stock: "1", Ours: "2"}}},
		"missing key":    {stock: map[string]any{"a": "x"}, ours: map[string]any{}, want: []Difference{{Where: "s > a", Stock: "x"}}},
		"extra key":      {stock: map[string]any{}, ours: map[string]any{"a": "x"}, want: []Difference{{Where: "s > a", Ours: "x"}}},
		"null and empty": {stock: []any{}, ours: nil, want: []Difference{{Where: "s", Stock: "[]", Ours: "null"}}},
		"longer list":    {stock: []any{"a"}, ours: []any{"a", "b"}, want: []Difference{{Where: "s > [1]", Ours: "b"}}},
		"other order":    {stock: Sequence{"a", "b"}, ours: Sequence{"b", "a"}, want: []Difference{{Where: "s > order", Stock: "[0] a, b", Ours: "[0] b, a"}}},
		"twice": {
			stock: Sequence{"a"}, ours: Sequence{"a", "a", "c"},
			want: []Difference{{Where: "s > extra", Ours: "1 more of a"}, {Where: "s > extra", Ours: "1 more of c"}},
		},
		"other type": {stock: "a", ours: []any{"a"}, want: []Difference{{Where: "s", Stock: "a", Ours: `["a"]`}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			found := Compare(observation(map[string]any{"s": tc.stock}), observation(map[string]any{"s": tc.ours}))
			g.Expect(found).To(Equal(tc.want))
		})
	}
}

func TestAllowed(t *testing.T) {
	g := NewWithT(t)
	file := filepath.Join(t.TempDir(), "allowed.yaml")
	list := `
- {numbers: [1], where: ["a > * > c"], reason: r}
- {numbers: [2], where: [x], tags: [csi], reason: r}
- {numbers: [3], where: [never], reason: r}
`
	g.Expect(os.WriteFile(file, []byte(list), 0o600)).To(Succeed())
	allowed, err := LoadAllowed(file)
	g.Expect(err).NotTo(HaveOccurred())
	differences := []Difference{{Where: "a > b > c"}, {Where: "a > b > d"}, {Where: "x"}}
	g.Expect(allowed.Filter(Case{}, differences)).To(Equal([]Difference{{Where: "a > b > d"}, {Where: "x"}}))
	g.Expect(allowed.Filter(Case{Tags: []string{"csi"}}, differences)).To(Equal([]Difference{{Where: "a > b > d"}}))
	g.Expect(allowed.Stale()).To(MatchError(And(ContainSubstring("never"), Not(ContainSubstring(`"x"`)))))
}

func TestNormaliser(t *testing.T) {
	g := NewWithT(t)
	names := newNames()
	names.set("velero-data-abcde", "vs app/data")
	names.set("0f9a", "uid of vs app/data")
	n := normaliser{words: names.replacer(), namespace: "velero-ours"}
	in := map[string]any{
		"metadata": map[string]any{"name": "velero-data-abcde", "resourceVersion": "7", "managedFields": []any{"x"}},
		"status":   map[string]any{"content": "snapcontent-0f9a", "at": "2026-11-30T19:00:00Z", "in": "velero-ours/b", "n": 3.0},
		"list":     Sequence{"velero-data-abcde"},
	}
	g.Expect(n.tree(in)).To(Equal(map[string]any{
		"metadata": map[string]any{"name": "<vs app/data>", "resourceVersion": "<resourceVersion>", "managedFields": "<managedFields>"},
		"status":   map[string]any{"content": "snapcontent-<uid of vs app/data>", "at": "<time>", "in": "<velero>/b", "n": 3.0},
		"list":     Sequence{"<vs app/data>"},
	}))
}
