// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
)

const (
	callsFile = "calls.jsonl"
	pollsFile = "polls"
)

// Call is one call of a plugin.
type Call struct {
	// Plugin is the name that it is registered under, Method that of the interface.
	Plugin string `json:"plugin"`
	Method string `json:"method"`
	// Item is "Kind namespace/name", or what else the call is about, as a volume ID.
	Item string `json:"item,omitempty"`
	// Input is the item, or the other arguments.
	Input any `json:"input,omitempty"`
	// Backup is the Backup that came with the call.
	Backup any `json:"backup,omitempty"`
	// Answer is what was returned apart from the item; Error the error, or what else was done instead of an answer.
	Answer any    `json:"answer,omitempty"`
	Error  string `json:"error,omitempty"`
	// InFlight is how many calls this process had at that moment, this one included.
	InFlight int `json:"inFlight,omitempty"`
	// Process is the ID of the plugin's process.
	Process int `json:"process,omitempty"`
}

// recorder writes calls. It may be used concurrently, and by several processes.
type recorder struct {
	dir      string
	inFlight atomic.Int32
}

func newRecorder(dir string) *recorder { return &recorder{dir: dir} }

// poll counts the Progress calls of an operation, over all processes: Velero starts a new one each time that it asks.
func (r *recorder) poll(id string) (int, error) {
	name := filepath.Join(r.dir, pollsFile)
	if err := appendLine(name, []byte(id)); err != nil {
		return 0, err
	}
	content, err := os.ReadFile(name)
	count := 0
	for line := range strings.Lines(string(content)) {
		if strings.TrimSuffix(line, "\n") == id {
			count++
		}
	}
	return count, err
}

// write appends a call in one write.
func (r *recorder) write(call Call) error {
	call.Process = os.Getpid()
	line, err := json.Marshal(call)
	if err != nil {
		return fmt.Errorf("recording %s %s: %w", call.Method, call.Item, err)
	}
	return appendLine(filepath.Join(r.dir, callsFile), line)
}

// appendLine adds a line in one write, so that lines of several processes don't mix.
func appendLine(name string, line []byte) error {
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}

// Take returns the calls that the plugins of a folder recorded, and starts the record anew. No backup may be under way.
func Take(dir string) ([]Call, error) {
	if err := os.Remove(filepath.Join(dir, pollsFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	name := filepath.Join(dir, callsFile)
	content, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var calls []Call
	for line := range bytes.Lines(content) {
		var call Call
		if err := json.Unmarshal(line, &call); err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		calls = append(calls, call)
	}
	return calls, os.Remove(name)
}
