// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/velero-clipper/clipper/internal/lab/process"
	"github.com/velero-clipper/clipper/internal/lab/toolchain"
)

// startSnapshotters starts the snapshot-controller and a sidecar for each driver. A sidecar whose driver
// doesn't listen yet waits for it; Start doesn't wait for such a sidecar.
func (c *Cluster) startSnapshotters(ctx context.Context) error {
	if c.opts.SnapshotCRDs == "" {
		return nil
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return c.StartSnapshotController(groupCtx)
	})
	for _, driver := range c.opts.Drivers {
		group.Go(func() error {
			sidecar, err := c.launch(sidecarName(driver.Name), c.sidecarSpec(driver))
			if err != nil || !listens(driver.Socket) {
				return err
			}
			return waitReady(groupCtx, sidecar)
		})
	}
	return group.Wait()
}

// WaitSidecars waits until every sidecar has found its driver. Start has done so for the drivers
// that listened by then.
func (c *Cluster) WaitSidecars(ctx context.Context) error {
	for _, driver := range c.opts.Drivers {
		if err := waitReady(ctx, c.process(sidecarName(driver.Name))); err != nil {
			return err
		}
	}
	return nil
}

// StopSidecar kills the csi-snapshotter of a driver.
func (c *Cluster) StopSidecar(driver string) error { return c.stopProcess(sidecarName(driver)) }

// StartSidecar starts the csi-snapshotter of a driver again and waits until it has found its driver.
func (c *Cluster) StartSidecar(ctx context.Context, driver string) error {
	for _, endpoint := range c.opts.Drivers {
		if endpoint.Name != driver {
			continue
		}
		sidecar, err := c.launch(sidecarName(driver), c.sidecarSpec(endpoint))
		if err != nil {
			return err
		}
		return waitReady(ctx, sidecar)
	}
	return fmt.Errorf("the cluster has no driver %s", driver)
}

// StopSnapshotController kills the snapshot-controller.
func (c *Cluster) StopSnapshotController() error { return c.stopProcess(controllerName) }

// StartSnapshotController starts the snapshot-controller again and waits until it works.
func (c *Cluster) StartSnapshotController(ctx context.Context) error {
	controller, err := c.launch(controllerName, c.controllerSpec())
	if err != nil {
		return err
	}
	return waitReady(ctx, controller)
}

func (c *Cluster) stopProcess(name string) error {
	child := c.process(name)
	if child == nil {
		return fmt.Errorf("the cluster runs no %s", name)
	}
	child.Kill()
	return nil
}

// listens says whether a driver answers at the socket.
func listens(socket string) bool {
	conn, err := net.Dial("unix", socket)
	return err == nil && conn.Close() == nil
}

const controllerName = "snapshot-controller"

func sidecarName(driver string) string { return "csi-snapshotter-" + driver }

func (c *Cluster) controllerSpec() process.Spec {
	args := append(c.snapshotterArgs(UserSnapshotController), c.opts.Snapshotter.ControllerArgs...)
	return process.Spec{
		Path: c.opts.Programs[toolchain.SnapshotController], Args: args,
		LogPath: c.logPath(controllerName), ReadyLine: "Starting snapshot controller",
	}
}

func (c *Cluster) sidecarSpec(driver DriverEndpoint) process.Spec {
	args := append(c.snapshotterArgs(UserSidecar(driver.Name)),
		"--csi-address="+driver.Socket,
		"--timeout="+c.opts.Snapshotter.Timeout.String(),
	)
	return process.Spec{
		Path: c.opts.Programs[toolchain.CSISnapshotter], Args: append(args, c.opts.Snapshotter.SidecarArgs...),
		LogPath: c.logPath(sidecarName(driver.Name)), ReadyLine: "Starting CSI snapshotter",
	}
}

// snapshotterArgs are the flags that the two programs share.
func (c *Cluster) snapshotterArgs(user User) []string {
	s := c.opts.Snapshotter
	return []string{
		"--kubeconfig=" + c.Kubeconfig(user),
		"--leader-election=false",
		"--worker-threads=" + strconv.Itoa(s.Workers),
		"--kube-api-qps=" + strconv.FormatFloat(s.QPS, 'f', -1, 64),
		"--kube-api-burst=" + strconv.Itoa(s.Burst),
		"--retry-interval-start=" + s.RetryStart.String(),
		"--retry-interval-max=" + s.RetryMax.String(),
	}
}
