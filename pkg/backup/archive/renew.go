// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"k8s.io/utils/clock"
)

// Renew writes the tarball src to dst with some of its files in another state: each of these takes the place of the entry of its
// path, and those that have no entry yet follow at the end, in the given order (331). Of files with the same path the last one
// counts. When it fails dst must not be used. A nil clock means the real one.
func Renew(dst io.Writer, src io.Reader, files []File, clk clock.PassiveClock) error {
	unzipped, err := gzip.NewReader(src)
	if err != nil {
		return fmt.Errorf("reading the backup tarball: %w", err)
	}
	defer func() { _ = unzipped.Close() }() // it has nothing of its own to close
	fresh := map[string]File{}
	for _, file := range files {
		fresh[file.Path] = file
	}
	w := newWriter(dst, clk)
	if err := w.renew(tar.NewReader(unzipped), fresh); err != nil {
		return err
	}
	for _, file := range files {
		last, wanted := fresh[file.Path]
		if !wanted {
			continue
		}
		delete(fresh, file.Path)
		if err := w.Add(last); err != nil {
			return err
		}
	}
	return w.Close()
}

// renew goes through the entries of a tarball, and takes the files that it has used out of fresh.
func (w *Writer) renew(from *tar.Reader, fresh map[string]File) error {
	for {
		header, err := from.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the backup tarball: %w", err)
		}
		if file, found := fresh[header.Name]; found {
			delete(fresh, header.Name)
			if err := w.Add(file); err != nil {
				return err
			}
			continue
		}
		if err := w.tar.WriteHeader(header); err != nil {
			return fmt.Errorf("writing the header of %s to the backup tarball: %w", header.Name, err)
		}
		if _, err := io.Copy(w.tar, from); err != nil {
			return fmt.Errorf("copying %s to the backup tarball: %w", header.Name, err)
		}
	}
}
