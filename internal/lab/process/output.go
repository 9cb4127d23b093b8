// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
)

// output is where a child's output goes: straight into the log file, or, when a
// line of it is waited for, through a pipe.
type output struct {
	child *os.File // given to the child; nil discards
	ready chan struct{}

	reader *os.File
	log    *os.File
	line   string
	copied sync.WaitGroup
}

func newOutput(logPath, readyLine string) (*output, error) {
	o := &output{ready: make(chan struct{}), line: readyLine}
	if readyLine == "" {
		close(o.ready)
	}
	if logPath == "" && readyLine == "" {
		return o, nil
	}
	var err error
	if o.log, err = openLog(logPath); err != nil {
		return nil, err
	}
	if readyLine == "" {
		o.child = o.log
		return o, nil
	}
	if o.reader, o.child, err = os.Pipe(); err != nil {
		return nil, errors.Join(err, o.log.Close())
	}
	o.copied.Go(o.copy)
	return o, nil
}

// childStarted closes our copy of the child's descriptor, whether or not the
// child came to life.
func (o *output) childStarted() {
	if o.child != nil {
		_ = o.child.Close()
	}
}

// wait returns when everything that the group has written is in the log.
func (o *output) wait() { o.copied.Wait() }

// copy writes lines to the log up to the one that is waited for, and then
// whatever comes.
func (o *output) copy() {
	defer o.log.Close()
	defer o.reader.Close()
	lines := bufio.NewReader(o.reader)
	for {
		line, err := lines.ReadString('\n')
		// A full disk must not block the child, so the error is passed over.
		_, _ = o.log.WriteString(line)
		if err != nil {
			return
		}
		if strings.Contains(line, o.line) {
			close(o.ready)
			break
		}
	}
	if _, err := io.Copy(o.log, lines); err != nil {
		_, _ = io.Copy(io.Discard, lines)
	}
}
