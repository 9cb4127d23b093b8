// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"net"
)

// FreePorts returns that many different TCP ports of 127.0.0.1 that nobody
// listens on now. Someone may take one before it is used; whoever
// starts a program on it must report a port in use plainly.
func FreePorts(count int) ([]int, error) {
	var errs []error
	ports := make([]int, 0, count)
	for range count {
		// All stay open until the last is had, so that they differ.
		listener, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			errs = append(errs, err)
			break
		}
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("looking for free loopback ports: %w", errors.Join(errs...))
	}
	return ports, nil
}
