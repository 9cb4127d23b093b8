// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/internal/lab/cluster"
)

// Info says where the parts of a running lab are.
type Info struct {
	// Kubeconfig is that of an administrator, LogDir the folder of all logs.
	Kubeconfig, LogDir string
	// StoreURL and Bucket are the object store's.
	StoreURL, Bucket string
}

// Up starts cluster, workload and server of a scenario, calls ready, and keeps them until the context ends. It makes no
// backups. The error is a *SetupError when the lab could not be started; the end of the context is no error.
func Up(ctx context.Context, opts Options, ready func(Info)) error {
	r, err := newRun(opts)
	if err != nil {
		return &SetupError{Step: "preparing the lab", Err: err}
	}
	defer r.removeDir()
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer r.stop()
		for _, step := range []step{
			{"starting the cluster", r.startLab},
			{"creating the workload", r.createWorkload},
			{"starting the Velero server", r.startServer},
		} {
			if err := r.step(groupCtx, group, step); err != nil {
				return err
			}
		}
		ready(Info{
			Kubeconfig: r.lab.cluster.Kubeconfig(cluster.UserAdmin), LogDir: r.opts.Dir,
			StoreURL: r.lab.store.URL(), Bucket: r.lab.store.Bucket(),
		})
		return r.bindRestored(groupCtx, client.HasLabels{velerov1.RestoreNameLabel})
	})
	err = group.Wait()
	r.lab.closeLogs()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
