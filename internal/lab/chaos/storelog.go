// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"path"
	"strings"
)

// storeLog reads the object store's log of requests, and notes each file of a backup that was written.
type storeLog struct{ state *state }

// Write gets one line: time, status, method, path, duration.
func (s storeLog) Write(line []byte) (int, error) {
	fields := strings.Fields(string(line))
	if len(fields) < 4 || fields[1] != "200" || fields[2] != "PUT" {
		return len(line), nil
	}
	file, _, _ := strings.Cut(fields[3], "?")
	if backup := path.Base(path.Dir(file)); path.Base(path.Dir(path.Dir(file))) == "backups" {
		name := strings.TrimPrefix(path.Base(file), backup)
		s.state.update(func(seen *seen) { seen.files = append(seen.files, name) })
	}
	return len(line), nil
}
