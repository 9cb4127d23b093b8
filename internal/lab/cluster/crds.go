// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apimachinery/pkg/watch"
)

const crdKind = "CustomResourceDefinition"

// crdSet is what is installed.
type crdSet struct {
	snapshot, velero []*apiextensionsv1.CustomResourceDefinition
}

func (s *crdSet) all() []*apiextensionsv1.CustomResourceDefinition {
	return append(append([]*apiextensionsv1.CustomResourceDefinition{}, s.snapshot...), s.velero...)
}

// readCRDs reads the snapshot CRDs from their folder and asks the Velero binary for its own.
func (c *Cluster) readCRDs(ctx context.Context, into *crdSet) error {
	var err error
	if c.opts.SnapshotCRDs != "" {
		if into.snapshot, err = crdsFromDir(c.opts.SnapshotCRDs); err != nil {
			return fmt.Errorf("reading the snapshot CRDs: %w", err)
		}
	}
	if c.opts.Velero != "" {
		if into.velero, err = veleroCRDs(ctx, c.opts.Velero); err != nil {
			return fmt.Errorf("reading Velero's CRDs: %w", err)
		}
	}
	return nil
}

func crdsFromDir(dir string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		found, err := parseCRDs(content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		crds = append(crds, found...)
	}
	if len(crds) == 0 {
		return nil, fmt.Errorf("no CRD in %s", dir)
	}
	return crds, nil
}

func veleroCRDs(ctx context.Context, velero string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, velero, "install", "--crds-only", "--dry-run", "-o", "yaml")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", cmd, err, stderr.String())
	}
	crds, err := parseCRDs(stdout.Bytes())
	if err == nil && len(crds) == 0 {
		err = errors.New("it printed none")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cmd, err)
	}
	return crds, nil
}

// parseCRDs finds the CRDs among YAML documents, which may be lists.
func parseCRDs(content []byte) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	var crds []*apiextensionsv1.CustomResourceDefinition
	for {
		var object unstructured.Unstructured
		err := documents.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return crds, nil
		}
		if err != nil {
			return nil, err
		}
		if err := collectCRDs(&object, &crds); err != nil {
			return nil, err
		}
	}
}

func collectCRDs(object *unstructured.Unstructured, into *[]*apiextensionsv1.CustomResourceDefinition) error {
	if object.IsList() {
		return object.EachListItem(func(item runtime.Object) error {
			return collectCRDs(item.(*unstructured.Unstructured), into)
		})
	}
	if object.GetKind() != crdKind {
		return nil
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, crd); err != nil {
		return fmt.Errorf("CRD %s: %w", object.GetName(), err)
	}
	*into = append(*into, crd)
	return nil
}

// installCRDs creates the CRDs and waits until all of them are served.
func (c *Cluster) installCRDs(ctx context.Context, crds *crdSet) error {
	all := crds.all()
	if len(all) == 0 {
		return nil
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, crd := range all {
		group.Go(func() error {
			if err := c.admin.Create(groupCtx, crd); err != nil {
				return fmt.Errorf("creating CRD %s: %w", crd.Name, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return c.awaitEstablished(ctx, all)
}

// usedAtOnce are the CRDs of which objects are created as soon as the cluster is up. For two seconds after a CRD was
// established an API server delays each creation of its objects, in case another API server doesn't know it yet. There is no
// other one here, and no measured time may contain that delay, so these are made to look older. Each
// such update costs some 30 ms of a start, which is why not all are.
var usedAtOnce = map[string]bool{
	"volumesnapshotclasses.snapshot.storage.k8s.io":  true,
	"volumesnapshotcontents.snapshot.storage.k8s.io": true,
	"volumesnapshots.snapshot.storage.k8s.io":        true,
	"backupstoragelocations.velero.io":               true,
	"backups.velero.io":                              true,
}

// awaitEstablished waits until the CRDs are served.
func (c *Cluster) awaitEstablished(ctx context.Context, crds []*apiextensionsv1.CustomResourceDefinition) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not established within %s", startLimit))
	defer cancel()
	missing := map[string]bool{}
	for _, crd := range crds {
		missing[crd.Name] = true
	}
	err := Await(ctx, c.admin, &apiextensionsv1.CustomResourceDefinitionList{}, func(event watch.Event) (bool, error) {
		crd, ok := event.Object.(*apiextensionsv1.CustomResourceDefinition)
		if !ok || !missing[crd.Name] {
			return false, nil
		}
		condition := established(crd)
		if condition == nil {
			return false, nil
		}
		if !usedAtOnce[crd.Name] || time.Since(condition.LastTransitionTime.Time) > settled {
			delete(missing, crd.Name)
			return len(missing) == 0, nil
		}
		return false, c.age(ctx, crd, condition)
	})
	if err != nil {
		return fmt.Errorf("waiting for %d CRDs: %w", len(missing), err)
	}
	return nil
}

// settled is how long ago a CRD that is used at once must have been established.
const settled = time.Minute

// age makes the condition look older than settled. A conflict needs nothing: the newer CRD comes by in the watch.
func (c *Cluster) age(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition,
	condition *apiextensionsv1.CustomResourceDefinitionCondition,
) error {
	condition.LastTransitionTime = metav1.NewTime(time.Now().Add(-2 * settled))
	err := c.admin.Status().Update(ctx, crd)
	if err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("updating the status of CRD %s: %w", crd.Name, err)
	}
	return nil
}

// established returns the condition once it is true, else nil.
func established(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinitionCondition {
	for i := range crd.Status.Conditions {
		condition := &crd.Status.Conditions[i]
		if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
			return condition
		}
	}
	return nil
}
