// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// DriverLimits says how many snapshots of each CSI driver may be in flight in the whole server. It is the value of the
// flag --csi-snapshot-driver-parallelism and implements pflag.Value. A driver that isn't named has no limit of its own.
type DriverLimits map[string]int

// Set implements pflag.Value. It reads driver=N,driver=N,... and adds it to what was set before, so that the flag may be
// repeated; each N is at least 1.
func (l *DriverLimits) Set(text string) error {
	parsed := DriverLimits{}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		name, number, found := strings.Cut(part, "=")
		name, number = strings.TrimSpace(name), strings.TrimSpace(number)
		value, err := strconv.ParseUint(number, 10, 31) // ParseUint refuses signs and blanks
		if !found || err != nil || value == 0 || len(validation.IsDNS1123Subdomain(strings.ToLower(name))) > 0 {
			return fmt.Errorf("%q in %q isn't a driver's limit: accepted are driver=N with N of at least 1, such as "+
				"ebs.csi.aws.com=20, and several of them with commas in between", part, text)
		}
		if before, again := parsed[name]; again && before != int(value) {
			return fmt.Errorf("%q gives the driver %s two limits, %d and %d: keep one", text, name, before, value)
		}
		parsed[name] = int(value)
	}
	if *l == nil {
		*l = DriverLimits{}
	}
	for name, value := range parsed {
		(*l)[name] = value
	}
	return nil
}

// String implements pflag.Value; Set reads it back.
func (l DriverLimits) String() string {
	parts := make([]string, 0, len(l))
	for name, value := range l {
		parts = append(parts, name+"="+strconv.Itoa(value))
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

// Type implements pflag.Value.
func (l DriverLimits) Type() string { return "driver=N,..." }
