// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"unicode/utf8"

	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// maxEnd is how many bytes of each end of a text are looked at. What an error is about stands at its beginning, and its cause
// at its end; stack traces and lists of objects stand between them.
const maxEnd = 8 << 10

// gap takes the place of what is left out. It has no word in it, so no pattern is met by the joint alone.
const gap = " ... "

// subject is an error, prepared once for all rules. Its texts are valid UTF-8 and of bounded size.
type subject struct {
	snapshot.Observation
	// code is the gRPC code, or noCode.
	code string
	// words are the driver's own, unquoted: without what external-snapshotter puts around them, which has names of volumes
	// and objects in it.
	words string

	ofWords, ofMessage *index
}

// newSubject never fails: what isn't UTF-8 is replaced, what is too long loses its middle.
func newSubject(o snapshot.Observation) *subject {
	// Unquoting comes after shortening: it is the dearer of the two.
	o.Message = clip(o.Message)
	code, words := snapshot.DriverError(o.Message)
	if o.Code != "" {
		code = o.Code
	}
	if code == "" {
		code = noCode
	}
	s := &subject{Observation: o, code: clip(code), words: clip(unescaped(o.Message, words))}
	for _, text := range []*string{&s.Driver, &s.StorageClass, &s.Namespace, &s.PVC} {
		*text = clip(*text)
	}
	s.Phase = snapshot.ErrorPhase(clip(string(s.Phase)))
	return s
}

// codeName is the code as users write it: empty when there is none.
func (s *subject) codeName() string {
	if s.code == noCode {
		return ""
	}
	return s.code
}

func (s *subject) wordsIndex() *index {
	if s.ofWords == nil {
		s.ofWords = newIndex(s.words)
	}
	return s.ofWords
}

func (s *subject) messageIndex() *index {
	if s.ofMessage == nil {
		s.ofMessage = newIndex(s.Message)
	}
	return s.ofMessage
}

// clip makes a text valid UTF-8 of bounded size.
func clip(text string) string {
	if len(text) > 2*maxEnd {
		head, tail := maxEnd, len(text)-maxEnd
		for head > 0 && !utf8.RuneStart(text[head]) {
			head--
		}
		for tail < len(text) && !utf8.RuneStart(text[tail]) {
			tail++
		}
		text = text[:head] + gap + text[tail:]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

var escapes = strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\n`, "\n", `\t`, "\t")

// unescaped undoes the common escapes of quoted words that DriverError could not unquote as a whole, since somebody cut off
// their end.
func unescaped(message, words string) string {
	start := len(message) - len(words)
	if start <= 0 || !strings.Contains(words, `\`) || message[start:] != words {
		return words
	}
	if at := strings.LastIndex(message[:start], "rpc error: code = "); at > 0 && message[at-1] == '"' {
		return escapes.Replace(words)
	}
	return words
}
