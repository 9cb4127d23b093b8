// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"fmt"
	"io"
	"os"
	"time"
)

// A terminal shows the elapsed time every second on one line; a log gets a line
// from time to time, so that it can be told from a build that hangs.
const (
	terminalEvery = time.Second
	logEvery      = 15 * time.Second
)

// report announces what is going on, repeats it with the elapsed time, and says
// how it ended when the returned function is called. That function returns when
// nothing more will be written.
func report(out io.Writer, what string) func(error) {
	start := time.Now()
	every, ending := logEvery, "\n"
	clear := ""
	if isTerminal(out) {
		every, ending, clear = terminalEvery, "", "\r\x1b[K"
	}
	fmt.Fprintf(out, "%s%s%s", clear, what, ending)

	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				fmt.Fprintf(out, "%s%s ... elapsed %s%s", clear, what, elapsed(start), ending)
			}
		}
	}()
	return func(err error) {
		close(stop)
		<-stopped
		end := "done"
		if err != nil {
			end = "failed"
		}
		fmt.Fprintf(out, "%s%s: %s after %s\n", clear, what, end, elapsed(start))
	}
}

func elapsed(start time.Time) time.Duration {
	return time.Since(start).Round(time.Second)
}

// isTerminal takes any character device for a terminal, which does no harm for
// the one other that is used, /dev/null.
func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
