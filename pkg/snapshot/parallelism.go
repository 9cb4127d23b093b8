// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"strconv"
	"strings"
)

// DefaultParallelism is how many snapshots may be in flight when nothing else was said.
const DefaultParallelism = 50

// Parallelism says how many snapshots may be in flight (created, not yet cut). It is the value of the flag
// --csi-snapshot-parallelism and of the backup annotation velero.io/csi-snapshot-parallelism. Its zero value is the
// default of 50. It implements pflag.Value.
type Parallelism struct {
	kind  parallelismKind
	value int
}

type parallelismKind int

const (
	parallelismDefault parallelismKind = iota
	parallelismCount
	parallelismPercent
	parallelismUnlimited
	parallelismDisabled
)

const acceptedParallelism = `accepted are a number of at least 1, a percentage of the backup's PVC count from "1%" to "100%", ` +
	`"unlimited", or "0" for Velero's own engine`

// ParseParallelism reads one of the forms N (at least 1), N% (1 to 100), unlimited, and 0. The error lists them.
func ParseParallelism(text string) (Parallelism, error) {
	text = strings.TrimSpace(text)
	if strings.EqualFold(text, "unlimited") {
		return Parallelism{kind: parallelismUnlimited}, nil
	}
	digits, percent := strings.CutSuffix(text, "%")
	value, err := strconv.ParseUint(digits, 10, 31) // ParseUint refuses signs and blanks
	switch {
	case err != nil, percent && (value < 1 || value > 100):
		return Parallelism{}, fmt.Errorf("parallelism %q: %s", text, acceptedParallelism)
	case percent:
		return Parallelism{kind: parallelismPercent, value: int(value)}, nil
	case value == 0:
		return Parallelism{kind: parallelismDisabled}, nil
	}
	return Parallelism{kind: parallelismCount, value: int(value)}, nil
}

// Set implements pflag.Value.
func (p *Parallelism) Set(text string) error {
	parsed, err := ParseParallelism(text)
	if err != nil {
		return err
	}
	*p = parsed
	return nil
}

// String implements pflag.Value; ParseParallelism reads it back.
func (p Parallelism) String() string {
	switch p.kind {
	case parallelismCount:
		return strconv.Itoa(p.value)
	case parallelismPercent:
		return strconv.Itoa(p.value) + "%"
	case parallelismUnlimited:
		return "unlimited"
	case parallelismDisabled:
		return "0"
	default:
		return strconv.Itoa(DefaultParallelism)
	}
}

// Type implements pflag.Value.
func (p Parallelism) Type() string { return "parallelism" }

// Disabled is true for 0: Velero's own engine is to run, and this package isn't used.
func (p Parallelism) Disabled() bool { return p.kind == parallelismDisabled }

// Limit is how many snapshots of a backup with that many PVCs may be in flight; 0 means no limit. A percentage is
// rounded up and gives at least 1. When Disabled, the question has no meaning and the answer is 1, the most careful one.
func (p Parallelism) Limit(pvcs int) int {
	switch p.kind {
	case parallelismCount:
		return p.value
	case parallelismPercent:
		return max(1, (pvcs*p.value+99)/100)
	case parallelismUnlimited:
		return 0
	case parallelismDisabled:
		return 1
	default:
		return DefaultParallelism
	}
}

// serverLimit is what the whole server may have in flight; 0 means no limit. For a percentage there is none beside the
// owners': the server may use the sum of what its owners may.
func (p Parallelism) serverLimit() int {
	if p.kind == parallelismPercent {
		return 0
	}
	return p.Limit(0)
}

// ownerLimit is what an owner may have in flight that came without a limit of its own; 0 means no limit. Under a
// percentage such an owner gets the default rather than everything.
func (p Parallelism) ownerLimit() int {
	if p.kind == parallelismPercent {
		return DefaultParallelism
	}
	return 0
}
