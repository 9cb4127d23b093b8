// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package podexec

import (
	"fmt"
	"sync"
)

// maxOutput is how much of a command's output is kept for the log. A database that tells its life must not fill the server's
// memory and the backup's log.
const maxOutput = 64 << 10

// output keeps the beginning of what is written to it. It locks itself, and is never full: a command must not block on it.
type output struct {
	mu      sync.Mutex
	kept    []byte
	dropped int
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	room := min(len(p), maxOutput-len(o.kept))
	o.kept = append(o.kept, p[:room]...)
	o.dropped += len(p) - room
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dropped > 0 {
		return fmt.Sprintf("%s... (%d more bytes)", o.kept, o.dropped)
	}
	return string(o.kept)
}
