// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ErrStockPanics is the error of a case that stock can't finish: its finalizer panics at an item with volumes that a plugin named for
// the time after its operation, and does so again at each try. Ours has come to its end then.
var ErrStockPanics = errors.New("stock's finalizer panics")

// panics says whether stock's finalizer has panicked at a backup.
func (e *engine) panics(backup string) (bool, error) {
	if e.name != Stock {
		return false, nil
	}
	content, err := os.ReadFile(e.server.LogPath())
	if err != nil {
		return false, fmt.Errorf("looking why backup %s has not ended: %w", backup, err)
	}
	return panicked(content, backup), nil
}

// panicked says whether a server's log tells of a panic in the finalizer for a backup.
func panicked(log []byte, backup string) bool {
	for line := range bytes.Lines(log) {
		if bytes.Contains(line, []byte("Observed a panic")) && bytes.Contains(line, []byte("controller=backup-finalizer")) &&
			bytes.Contains(line, fmt.Appendf(nil, " name=%s ", backup)) {
			return true
		}
	}
	return false
}

// Races returns what the race detector has reported of our server so far; nothing when its binary was built without it. Velero's own
// engine has races, and they are not looked at.
func (l *Lab) Races() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(l.opts.Dir, Ours, "*.log"))
	if err != nil {
		return nil, err
	}
	var found []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, report := range strings.Split(string(content), "WARNING: DATA RACE")[1:] {
			report, _, _ = strings.Cut(report, "==================")
			found = append(found, report)
		}
	}
	return found, nil
}
