// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/velero-clipper/clipper/internal/lab/recorder"
	"github.com/velero-clipper/clipper/internal/lab/result"
	"github.com/velero-clipper/clipper/internal/lab/scenario"
	"github.com/velero-clipper/clipper/internal/lab/server"
	"github.com/velero-clipper/clipper/internal/lab/toolchain"
)

// pluginDirs are the folders of one start of the server.
type pluginDirs struct {
	// programs holds the plugins themselves; recorder is where the recording plugin works, or empty when there is none.
	programs, recorder string
}

// plugins prepares the plugins of the next start. A recording plugin has a record for each start.
func (c *serverControl) plugins(spec scenario.Server) (pluginDirs, error) {
	opts := c.run.opts
	if spec.Plugins == nil {
		return pluginDirs{programs: opts.Programs.Dir(toolchain.AWSPlugin)}, nil
	}
	c.mu.Lock()
	start := len(c.recorders)
	c.mu.Unlock()
	dirs := pluginDirs{
		programs: filepath.Join(opts.Dir, fmt.Sprintf("plugins-%d", start)),
		recorder: filepath.Join(opts.Dir, fmt.Sprintf("recorder-%d", start)),
	}
	for _, dir := range []string{dirs.programs, dirs.recorder} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return dirs, err
		}
	}
	for _, program := range []string{opts.Programs[toolchain.AWSPlugin], opts.Recorder} {
		if err := server.CopyPlugin(program, dirs.programs); err != nil {
			return dirs, fmt.Errorf("installing a plugin (\"make build\" builds the recording one): %w", err)
		}
	}
	if err := recorder.SetBehaviour(dirs.recorder, spec.Plugins.Behaviour); err != nil {
		return dirs, err
	}
	c.mu.Lock()
	c.recorders = append(c.recorders, dirs.recorder)
	c.mu.Unlock()
	return dirs, nil
}

// collectPlugins reads what the recording plugin was called for.
func (r *run) collectPlugins(out *result.Result) error {
	out.Plugins = []result.Plugins{}
	if r.server == nil {
		return nil
	}
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	for _, dir := range r.server.recorders {
		calls, err := recorder.Take(dir)
		if err != nil {
			return fmt.Errorf("reading the record of the plugins: %w", err)
		}
		out.Plugins = append(out.Plugins, summary(calls))
	}
	return nil
}

func summary(calls []recorder.Call) result.Plugins {
	out := result.Plugins{Calls: map[string]int{}}
	processes := map[int]bool{}
	for _, call := range calls {
		_, plugin, _ := strings.Cut(call.Plugin, "/")
		out.Calls[strings.TrimSpace(plugin+" "+call.Method+" "+call.Item)]++
		out.PeakInFlight = max(out.PeakInFlight, call.InFlight)
		processes[call.Process] = true
	}
	out.Processes = len(processes)
	return out
}
