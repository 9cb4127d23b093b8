// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Check says whether the observations are what the case is made for.
func (c Case) Check(stock, ours *Observation) error {
	err := c.Expect.check(Stock, stock)
	if c.ExpectOurs != nil {
		err = errors.Join(err, c.ExpectOurs.check(Ours, ours))
	}
	return err
}

func (e Expected) check(engine string, seen *Observation) error {
	var errs []error
	status, _ := seen.Sections["backup"].(map[string]any)["status"].(map[string]any)
	if phase := fmt.Sprint(status["phase"]); phase != string(e.Phase) {
		errs = append(errs, fmt.Errorf("%s: the phase is %s, not %s", engine, phase, e.Phase))
	}
	entries := map[string]any{}
	if tarball, ok := seen.Sections["tarball"].(map[string]any); ok {
		entries = tarball["entries"].(map[string]any)
	}
	for _, end := range e.Has {
		if !hasEnd(entries, end) {
			errs = append(errs, fmt.Errorf("%s: the tarball has no %s", engine, end))
		}
	}
	for _, end := range e.HasNot {
		if hasEnd(entries, end) {
			errs = append(errs, fmt.Errorf("%s: the tarball has %s", engine, end))
		}
	}
	if len(errs) > 0 {
		errs = append(errs, fmt.Errorf("the tarball holds %s", strings.Join(slices.Sorted(maps.Keys(entries)), ", ")))
	}
	return errors.Join(errs...)
}

func hasEnd(entries map[string]any, end string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(entries)), func(path string) bool { return strings.HasSuffix(path, end) })
}

// SortByServer puts cases that can share a server side by side, and else keeps the order.
func SortByServer(cases []Case) {
	slices.SortStableFunc(cases, func(a, b Case) int { return strings.Compare(a.serverFlags(), b.serverFlags()) })
}

// serverFlags is what the server has to be started with.
func (c Case) serverFlags() string {
	flags := strings.Join(c.Args, " ")
	for _, key := range slices.Sorted(maps.Keys(c.Env)) {
		flags += " " + key + "=" + c.Env[key]
	}
	return flags
}
