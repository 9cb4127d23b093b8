// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// CopyPlugin puts the program of a plugin into a plugin folder, which is made when it isn't there. Velero takes no links.
func CopyPlugin(program, dir string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("copying plugin %s to %s: %w", program, dir, err)
		}
	}()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	from, err := os.Open(program)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(filepath.Join(dir, filepath.Base(program)), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}
