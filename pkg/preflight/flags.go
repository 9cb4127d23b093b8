// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"regexp"
	"strconv"
	"strings"
)

// flagOf finds a flag in a command line, as the flag packages of Go read it: one or two dashes, the value behind "=" or in the
// next word. The value is empty for a flag without one.
func flagOf(words []string, name string) (value string, ok bool) {
	_, value, ok = locateFlag(words, name)
	return value, ok
}

// locateFlag also says which word the value is in.
func locateFlag(words []string, name string) (at int, value string, ok bool) {
	for i, word := range words {
		text, dashed := strings.CutPrefix(strings.TrimPrefix(word, "-"), "-")
		if !dashed && !strings.HasPrefix(word, "-") {
			continue
		}
		key, after, assigned := strings.Cut(text, "=")
		switch {
		case key != name:
		case assigned:
			return i, after, true
		case i+1 < len(words) && !strings.HasPrefix(words[i+1], "-"):
			return i + 1, words[i+1], true
		default:
			return i, "", true
		}
	}
	return 0, "", false
}

// version is that of an image tag.
type version struct{ major, minor, patch int }

var tagForm = regexp.MustCompile(`^v?(\d{1,3})(?:\.(\d{1,3}))?(?:\.(\d{1,3}))?(?:[-_+.]|$)`)

// versionOf reads the version at the beginning of an image's tag, whatever a vendor has put behind it; false for a digest, a
// date or a word.
func versionOf(image string) (version, bool) {
	tag := tagOf(image)
	found := tagForm.FindStringSubmatch(tag)
	if found == nil {
		return version{}, false
	}
	number := func(text string) int {
		n, _ := strconv.Atoi(text) // three digits at most, or nothing, which is 0
		return n
	}
	return version{number(found[1]), number(found[2]), number(found[3])}, true
}

// tagOf is what stands behind the image's name; a registry may have a port.
func tagOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	name := image[strings.LastIndex(image, "/")+1:]
	_, tag, _ := strings.Cut(name, ":")
	return tag
}

// withTag is the image with another tag.
func withTag(image, tag string) string {
	image, _, _ = strings.Cut(image, "@")
	return strings.TrimSuffix(image, ":"+tagOf(image)) + ":" + tag
}

func (v version) before(other version) bool {
	if v.major != other.major {
		return v.major < other.major
	}
	if v.minor != other.minor {
		return v.minor < other.minor
	}
	return v.patch < other.patch
}
