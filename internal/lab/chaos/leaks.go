// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// Usage is what the server holds at a moment.
type Usage struct {
	Goroutines int `json:"goroutines"`
	OpenFiles  int `json:"openFiles"`
	// Heap is go_memstats_heap_inuse_bytes after a garbage collection.
	Heap int `json:"heapBytes"`
}

// String is one line.
func (u Usage) String() string {
	return fmt.Sprintf("%d goroutines, %d files, %.1f MiB", u.Goroutines, u.OpenFiles, float64(u.Heap)/(1<<20))
}

// exceeds says whether it is more than the other by more than what is no leak: fifty backups that leak one of anything each are found.
func (u Usage) exceeds(before Usage) bool {
	return u.Goroutines > before.Goroutines+20 || u.OpenFiles > before.OpenFiles+15 || u.Heap > before.Heap+before.Heap/4+(4<<20)
}

// Leaks is the server's usage after the first backups and after the last.
type Leaks struct {
	Backups int   `json:"backups"`
	First   Usage `json:"first"`
	Last    Usage `json:"last"`
}

const (
	// leakFirst is after how many backups the usage is what it is.
	leakFirst = 5
	// calmLimit is how long idle connections and the like may take to go.
	calmLimit = 2 * time.Minute
	calmEvery = 2 * time.Second
)

// Leaks takes so many small backups in one server process, each of which is deleted, and compares what the server holds after the fifth
// and after the last. An error says what has grown; profiles of both moments are in Dir.
func (l *Lab) Leaks(ctx context.Context, backups int) (*Leaks, error) {
	out := &Leaks{Backups: backups}
	for n := 1; n <= backups; n++ {
		if err := l.small(ctx, fmt.Sprintf("small-%d", n)); err != nil {
			return out, fmt.Errorf("backup %d of %d: %w", n, backups, err)
		}
		if n != leakFirst {
			continue
		}
		var err error
		if out.First, err = l.calm(ctx, Usage{}); err != nil {
			return out, err
		}
		if err := l.saveProfiles(ctx, "first"); err != nil {
			return out, err
		}
	}
	var err error
	if out.Last, err = l.calm(ctx, out.First); err != nil {
		return out, err
	}
	if out.Last.exceeds(out.First) {
		err = fmt.Errorf("after %d backups the server holds %s; after %d it was %s", backups, out.Last, leakFirst, out.First)
	}
	return out, errors.Join(err, l.saveProfiles(ctx, "last"))
}

// small takes a small backup, which must be Completed, and deletes it.
func (l *Lab) small(ctx context.Context, name string) error {
	l.begin()
	if err := l.createBackup(ctx, name, leakNamespace); err != nil {
		return err
	}
	if err := l.settle(ctx, isAtRest); err != nil {
		return err
	}
	phase := l.phases([]string{name})[0]
	if failures := l.check(true); phase != "Completed" || len(failures) > 0 {
		return fmt.Errorf("it is %s: %v", phase, failures)
	}
	out := new(Outcome)
	if err := l.clean(ctx, name, Point{}, out); err != nil {
		return err
	}
	if !out.Passed() {
		return fmt.Errorf("cleaning up: %v", out.Failures)
	}
	return nil
}

// calm reads the usage until it is no more than it was, or doesn't fall any more: connections that are idle go by themselves.
func (l *Lab) calm(ctx context.Context, before Usage) (Usage, error) {
	again := time.NewTicker(calmEvery)
	defer again.Stop()
	best, err := l.usage(ctx)
	for deadline := time.Now().Add(calmLimit); err == nil && time.Now().Before(deadline); {
		if before != (Usage{}) && !best.exceeds(before) {
			return best, nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return best, context.Cause(ctx)
		}
		var now Usage
		if now, err = l.usage(ctx); err != nil {
			return best, err
		}
		fell := now.Goroutines < best.Goroutines || now.OpenFiles < best.OpenFiles
		best = Usage{
			Goroutines: min(best.Goroutines, now.Goroutines), OpenFiles: min(best.OpenFiles, now.OpenFiles), Heap: min(best.Heap, now.Heap),
		}
		if before == (Usage{}) && !fell {
			return best, nil
		}
	}
	return best, err
}

// usage collects the server's garbage and reads its metrics.
func (l *Lab) usage(ctx context.Context) (Usage, error) {
	if _, err := l.profile(ctx, "heap?gc=1"); err != nil {
		return Usage{}, err
	}
	metrics, err := l.Server().Metrics(ctx)
	if err != nil {
		return Usage{}, err
	}
	var values [3]float64
	for i, name := range []string{"go_goroutines", "process_open_fds", "go_memstats_heap_inuse_bytes"} {
		value, ok := metrics.Value(name, nil)
		if !ok {
			return Usage{}, fmt.Errorf("the server has no metric %s", name)
		}
		values[i] = value
	}
	return Usage{Goroutines: int(values[0]), OpenFiles: int(values[1]), Heap: int(values[2])}, nil
}

// saveProfiles keeps the stacks of all goroutines and the heap.
func (l *Lab) saveProfiles(ctx context.Context, moment string) error {
	for _, name := range []string{"goroutine?debug=1", "heap?debug=1"} {
		content, err := l.profile(ctx, name)
		if err != nil {
			return err
		}
		file := filepath.Join(l.opts.Dir, fmt.Sprintf("%s-%.4s.txt", moment, name))
		if err := os.WriteFile(file, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) profile(ctx context.Context, name string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, l.Server().ProfilerURL()+"/"+name, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("reading profile %s of the server: %w", name, err)
	}
	content, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return nil, fmt.Errorf("reading profile %s of the server: %w", name, err)
	}
	return content, nil
}
