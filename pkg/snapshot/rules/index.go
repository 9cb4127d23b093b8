// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import "strings"

const (
	// indexBits is the size of an index; a text of some hundred bytes sets one bit in a hundred.
	indexBits = 1 << 15
	// maxGrams is how many places of a word are looked for. More would hardly tell more.
	maxGrams = 12
)

// index says quickly which words a text can't have: each three bytes of the text set one bit, upper and lower case alike. So a
// few hundred words cost one walk over the text, and nearly nothing each.
type index [indexBits / 64]uint64

// newIndex walks over a text.
func newIndex(text string) *index {
	x := &index{}
	if strings.ContainsRune(text, '\u017F') || strings.ContainsRune(text, '\u212A') {
		// Expressions that ignore case take these two for s and k.
		for i := range x {
			x[i] = ^uint64(0)
		}
		return x
	}
	for i := 0; i+3 <= len(text); i++ {
		bit := gram(text[i], text[i+1], text[i+2])
		x[bit/64] |= 1 << (bit % 64)
	}
	return x
}

// gram is the bit of three bytes.
func gram(a, b, c byte) uint32 {
	key := uint32(lower(a))<<16 | uint32(lower(b))<<8 | uint32(lower(c))
	return key * 2654435761 >> 17
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// word is a text that is looked for in indexes: its bits.
type word []uint32

// newWord returns nil for one that is too short to be looked for.
func newWord(text string) word {
	var w word
	for i := 0; i+3 <= len(text) && len(w) < maxGrams; i++ {
		w = append(w, gram(text[i], text[i+1], text[i+2]))
	}
	return w
}

// may is false when the text of the index doesn't have the word.
func (x *index) may(w word) bool {
	for _, bit := range w {
		if x[bit/64]&(1<<(bit%64)) == 0 {
			return false
		}
	}
	return true
}
