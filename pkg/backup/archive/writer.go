// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"sync"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"k8s.io/utils/clock"
)

// FormatVersion is the version of the layout, as stands in the tarball and in the Backup's status.formatVersion (29). It
// is stock's constant of the same name, which would bring the whole of stock's engine into every user of this package.
const FormatVersion = "1.1.0"

// ErrClosed is the error of adding to a Writer that was closed.
var ErrClosed = errors.New("the backup tarball is closed")

// mode of every entry (90, 178).
const mode = 0o755

// Writer writes the tarball of one backup. It is safe for concurrent use. Close must be called, or the stream is not
// complete.
type Writer struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	gzip  *gzip.Writer
	tar   *tar.Writer
	count int
	bytes int64
	// broken is the first error of the stream, or ErrClosed. After it nothing is written.
	broken error
	// closed and closeErr remember Close and its result.
	closed   bool
	closeErr error
}

// NewWriter starts a tarball on dst with the entry that names its format version (90). dst stays the caller's: Close
// doesn't close it. The clock gives files their time; nil means the real one.
func NewWriter(dst io.Writer, clk clock.PassiveClock) (*Writer, error) {
	w := newWriter(dst, clk)
	version := File{Path: path.Join(velerov1.MetadataDir, "version"), Data: []byte(FormatVersion + "\n")}
	if err := w.write(version); err != nil {
		return nil, err
	}
	return w, nil
}

func newWriter(dst io.Writer, clk clock.PassiveClock) *Writer {
	if clk == nil {
		clk = clock.RealClock{}
	}
	w := &Writer{clock: clk, gzip: gzip.NewWriter(dst)}
	w.tar = tar.NewWriter(w.gzip)
	return w
}

// Add writes files next to each other, in the given order, with no file of another call between them (178). When it
// fails the tarball is damaged and must not be used: this and every later call returns the error, and so does Close.
func (w *Writer) Add(files ...File) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		return w.broken
	}
	for _, file := range files {
		if err := w.write(file); err != nil {
			w.broken = err
			return err
		}
		w.count++
		w.bytes += int64(len(file.Data))
	}
	return nil
}

// Close completes the stream. Calling it again does nothing and returns the same result. An error means that the
// tarball must not be used.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return w.closeErr
	}
	// Both are closed after a failure too: what was written so far is more use to a reader of the remains complete.
	w.closeErr = w.broken
	if err := errors.Join(w.tar.Close(), w.gzip.Close()); err != nil && w.closeErr == nil {
		w.closeErr = fmt.Errorf("completing the backup tarball: %w", err)
	}
	w.closed = true
	if w.broken == nil {
		w.broken = ErrClosed
	}
	return w.closeErr
}

// Count returns how many files were added; the format version isn't counted.
func (w *Writer) Count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

// Bytes returns the size in bytes of the files that were added, before compression.
func (w *Writer) Bytes() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bytes
}

// write appends one entry. The lock is held, or the Writer isn't shared yet.
func (w *Writer) write(file File) error {
	header := &tar.Header{
		Name:     file.Path,
		Size:     int64(len(file.Data)),
		Typeflag: tar.TypeReg,
		Mode:     mode,
		ModTime:  file.ModTime,
	}
	if header.ModTime.IsZero() {
		header.ModTime = w.clock.Now()
	}
	if err := w.tar.WriteHeader(header); err != nil {
		return fmt.Errorf("writing the header of %s to the backup tarball: %w", file.Path, err)
	}
	if _, err := w.tar.Write(file.Data); err != nil {
		return fmt.Errorf("writing %s to the backup tarball: %w", file.Path, err)
	}
	return nil
}
