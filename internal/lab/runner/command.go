// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/velero-clipper/clipper/internal/lab/cluster"
	"github.com/velero-clipper/clipper/internal/lab/result"
	"github.com/velero-clipper/clipper/internal/lab/scenario"
)

// runVelero runs the command line with the rights of an administrator, in a folder of its own.
func (r *run) runVelero(ctx context.Context, step scenario.Run) error {
	dir := filepath.Join(r.opts.Dir, "commands", step.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, r.opts.Velero, step.Args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + r.opts.Dir, "VELERO_NAMESPACE=" + cluster.VeleroNamespace,
		"KUBECONFIG=" + r.lab.cluster.Kubeconfig(cluster.UserAdmin),
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("running velero %v: %w", step.Args, err)
	}
	if ctx.Err() != nil {
		return unfinished(context.Cause(ctx), "velero %v", step.Args)
	}
	out := &result.Command{ExitStatus: cmd.ProcessState.ExitCode(), Output: stdout.String() + stderr.String(), Fields: fieldsOf(stdout.Bytes())}
	if out.Files, err = filesIn(dir); err != nil {
		return fmt.Errorf("looking at what velero %v wrote: %w", step.Args, err)
	}
	r.commands[step.Name] = out
	return nil
}

// fieldsOf writes a JSON object out as paths and values; it is empty for other output.
func fieldsOf(answer []byte) map[string]string {
	fields := map[string]string{}
	var object map[string]any
	if json.Unmarshal(answer, &object) == nil {
		addFields(fields, "", object)
	}
	return fields
}

func addFields(fields map[string]string, path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, element := range v {
			addFields(fields, strings.TrimPrefix(path+"."+key, "."), element)
		}
	case []any:
		for i, element := range v {
			addFields(fields, path+"."+strconv.Itoa(i), element)
		}
	case nil:
	default:
		fields[path] = fmt.Sprint(v)
	}
}

// filesIn lists the files in a folder, and what is in those that are archives.
func filesIn(dir string) (map[string][]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	files := map[string][]string{}
	for _, entry := range entries {
		files[entry.Name()] = []string{}
		if !strings.HasSuffix(entry.Name(), ".tar.gz") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		unzipped, err := gzip.NewReader(bytes.NewReader(content))
		if err != nil {
			continue // an archive in name only has no files
		}
		archive, err := io.ReadAll(unzipped)
		if err != nil {
			continue
		}
		files[entry.Name()] = nonNil(tarNames(archive))
	}
	return files, nil
}
