// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Difference is one thing that the two engines did not do alike.
type Difference struct {
	// Where is the path in the observation, its parts separated by " > ".
	Where string
	// Stock and Ours are the two values; empty is none.
	Stock, Ours string
}

func (d Difference) String() string {
	const longest = 400
	show := func(text string) string {
		if text == "" {
			return "(nothing)"
		}
		if len(text) > longest {
			text = text[:longest] + " ..."
		}
		return text
	}
	return fmt.Sprintf("%s\n    stock: %s\n    ours:  %s", d.Where, show(d.Stock), show(d.Ours))
}

// IsOrder says whether the two did the same things in another order.
func (d Difference) IsOrder() bool { return strings.HasSuffix(d.Where, " > order") }

// Compare lists all differences, sorted by place.
func Compare(stock, ours *Observation) []Difference {
	var c comparison
	c.values("", stock.Sections, ours.Sections)
	slices.SortFunc(c.found, func(a, b Difference) int { return strings.Compare(a.Where, b.Where) })
	return c.found
}

type comparison struct{ found []Difference }

func (c *comparison) add(where, stock, ours string) {
	c.found = append(c.found, Difference{Where: where, Stock: stock, Ours: ours})
}

func below(where, key string) string {
	if where == "" {
		return key
	}
	return where + " > " + key
}

func (c *comparison) values(where string, stock, ours any) {
	switch stock := stock.(type) {
	case map[string]any:
		if ours, ok := ours.(map[string]any); ok {
			c.maps(where, stock, ours)
			return
		}
	case []any:
		if ours, ok := ours.([]any); ok {
			c.lists(where, stock, ours)
			return
		}
	case Sequence:
		if ours, ok := ours.(Sequence); ok {
			c.sequences(where, stock, ours)
			return
		}
	}
	if !reflect.DeepEqual(stock, ours) {
		c.add(where, show(stock), show(ours))
	}
}

func (c *comparison) maps(where string, stock, ours map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(stock)) {
		other, ok := ours[key]
		if !ok {
			c.add(below(where, key), show(stock[key]), "")
			continue
		}
		c.values(below(where, key), stock[key], other)
	}
	for _, key := range slices.Sorted(maps.Keys(ours)) {
		if _, ok := stock[key]; !ok {
			c.add(below(where, key), "", show(ours[key]))
		}
	}
}

func (c *comparison) lists(where string, stock, ours []any) {
	for i := range max(len(stock), len(ours)) {
		place := below(where, fmt.Sprintf("[%d]", i))
		switch {
		case i >= len(ours):
			c.add(place, show(stock[i]), "")
		case i >= len(stock):
			c.add(place, "", show(ours[i]))
		default:
			c.values(place, stock[i], ours[i])
		}
	}
}

// sequences reports elements that only one has, each by itself, and, when both have the same ones, where the order begins to differ.
func (c *comparison) sequences(where string, stock, ours Sequence) {
	counts := map[string]int{}
	for _, one := range stock {
		counts[one]++
	}
	for _, one := range ours {
		counts[one]--
	}
	same := true
	for _, one := range slices.Sorted(maps.Keys(counts)) {
		switch count := counts[one]; {
		case count > 0:
			c.add(below(where, "missing"), fmt.Sprintf("%d more of %s", count, one), "")
		case count < 0:
			c.add(below(where, "extra"), "", fmt.Sprintf("%d more of %s", -count, one))
		default:
			continue
		}
		same = false
	}
	if !same || slices.Equal(stock, ours) {
		return
	}
	first := 0
	for stock[first] == ours[first] {
		first++
	}
	c.add(below(where, "order"), excerpt(stock, first), excerpt(ours, first))
}

// excerpt is what follows a place in a sequence.
func excerpt(s Sequence, from int) string {
	const length = 4
	return fmt.Sprintf("[%d] %s", from, strings.Join(s[from:min(len(s), from+length)], ", "))
}

func show(value any) string {
	if text, ok := value.(string); ok {
		return text
	}
	content, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(content)
}

// Group puts differences of the same kind into one: equal values at the ends of paths that are alike.
func Group(differences []Difference) []Difference {
	type key struct{ section, last, stock, ours string }
	index := map[key]int{}
	counts := map[int]int{}
	var out []Difference
	for _, d := range differences {
		section, _, _ := strings.Cut(d.Where, " > ")
		k := key{section: section, last: d.Where[strings.LastIndexByte(d.Where, '>')+1:], stock: d.Stock, ours: d.Ours}
		if i, ok := index[k]; ok {
			counts[i]++
			continue
		}
		index[k] = len(out)
		out = append(out, d)
	}
	for i, count := range counts {
		out[i].Where += fmt.Sprintf("   (and %d places like it)", count)
	}
	return out
}
