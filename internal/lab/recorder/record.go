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
	"sync"
	"sync/atomic"
)

const callsFile = "calls.jsonl"

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
	// InFlight is how many calls of item actions this process had at that moment, this one included.
	InFlight int `json:"inFlight,omitempty"`
}

// recorder writes calls. It may be used concurrently.
type recorder struct {
	dir      string
	inFlight atomic.Int32

	mu sync.Mutex
	// polls counts the Progress calls of each operation.
	polls map[string]int
}

func newRecorder(dir string) *recorder { return &recorder{dir: dir, polls: map[string]int{}} }

// write appends a call in one write.
func (r *recorder) write(call Call) error {
	line, err := json.Marshal(call)
	if err != nil {
		return fmt.Errorf("recording %s %s: %w", call.Method, call.Item, err)
	}
	file, err := os.OpenFile(filepath.Join(r.dir, callsFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}

// Take returns the calls that the plugins of a folder recorded, and starts the record anew. No backup may be under way.
func Take(dir string) ([]Call, error) {
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
