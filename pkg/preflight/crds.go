// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"slices"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
)

const installCRDs = "kubectl kustomize https://github.com/kubernetes-csi/external-snapshotter/client/config/crd | kubectl apply -f -"

// checkCRDs looks for the snapshot API.
func checkCRDs(s *State) []Finding {
	var out []Finding
	for _, name := range snapshotResources {
		out = append(out, checkCRD(name, s.API[name])...)
	}
	if len(out) == 0 {
		out = append(out, Finding{
			Severity: Info, Reason: "SnapshotCRDsServed", Object: "API group " + snapshotv1.GroupName,
			Message: fmt.Sprintf("The API server serves all resources of %s/v1 that snapshots need.", snapshotv1.GroupName),
		})
	}
	return out
}

func checkCRD(name string, r Resource) []Finding {
	full := name + "." + snapshotv1.GroupName
	object := "CustomResourceDefinition " + full
	switch {
	case !r.V1 && r.Err != nil:
		return notReadable(Warning, object, r.Err, "")
	case !r.V1 && r.Beta:
		return []Finding{{
			Severity: Error, Reason: "SnapshotCRDTooOld", Object: object, Fix: installCRDs,
			Message: fmt.Sprintf("The CRD %s is served in version v1beta1 only, and Velero needs v1: no CSI snapshot can be taken.", full),
		}}
	case !r.V1:
		return []Finding{{
			Severity: Error, Reason: "SnapshotCRDMissing", Object: object, Fix: installCRDs,
			Message: fmt.Sprintf("The CRD %s is missing: no CSI snapshot can be taken.", full),
		}}
	case r.Definition.Err != nil:
		return notReadable(Info, object, r.Definition.Err, "")
	}
	d := r.Definition.Value
	if d.Storage != "v1" || slices.Contains(d.Stored, "v1beta1") {
		return []Finding{{
			Severity: Warning, Reason: "OldStorageVersion", Object: object,
			Message: fmt.Sprintf("Objects of the CRD %s are stored as %s and there may be some stored as %v, which the CRDs of external-snapshotter 6 and later "+
				"can't take over.", full, d.Storage, d.Stored),
			Fix: fmt.Sprintf("write all objects again in v1 (kubectl get %s -A -o json | kubectl replace -f -), then kubectl patch crd %s --subresource=status --type=merge "+
				`-p '{"status":{"storedVersions":["v1"]}}'`, full, full),
		}}
	}
	return nil
}

// checkServer looks at the server's settings.
func checkServer(s *State) []Finding {
	server := s.Server.Value
	object := "Deployment of Velero in namespace " + s.Namespace
	switch {
	case s.Server.Err != nil:
		return notReadable(Info, object, s.Server.Err, "")
	case !server.Found:
		return []Finding{{
			Severity: Info, Reason: "ServerNotFound", Object: object,
			Message: fmt.Sprintf("No Deployment in namespace %s runs \"velero server\": its default settings are assumed.", s.Namespace),
			Fix:     "velero preflight --namespace NAMESPACE",
		}}
	case !server.CSI:
		return []Finding{{
			Severity: Error, Reason: "CSIFeatureOff", Object: object,
			Message: fmt.Sprintf("The Velero server in namespace %s runs without its CSI feature: it takes no CSI snapshots.", s.Namespace),
			Fix:     "add to the args of its container: - --features=" + velerov1.CSIFeatureFlag,
		}}
	case server.Parallelism.Disabled():
		return []Finding{{
			Severity: Info, Reason: "StockEngine", Object: object,
			Message: fmt.Sprintf("The Velero server in namespace %s runs with --csi-snapshot-parallelism=0, so Velero's own engine takes snapshots one by one.", s.Namespace),
			Fix:     "remove --csi-snapshot-parallelism=0 from the args of its container",
		}}
	}
	return nil
}
