// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"slices"
	"strings"
)

// Versions of the sidecar from which on a fault is gone.
var (
	// retriesInOrder: before it, a sidecar's own writes made it call the driver again at once after an error.
	retriesInOrder = version{8, 0, 0}
	// deletesLateCuts: before it, a snapshot that was deleted while it was being taken stayed (external-snapshotter#1388).
	deletesLateCuts = version{8, 6, 0}
)

const wantedTag = "v8.6.0"

// checkSidecars looks at the csi-snapshotter sidecars, and for one for each driver.
func checkSidecars(s *State) []Finding {
	if s.Workloads.Err != nil {
		return nil // checkControllers says so
	}
	sidecars := slices.DeleteFunc(slices.Clone(s.Workloads.Value), func(w Workload) bool { return w.Program != Sidecar })
	served, drivers := attribute(sortedKeys(s.Volumes.Value.CSI), sidecars)
	var out []Finding
	for i, w := range sidecars {
		count := 0
		for driver, volumes := range s.Volumes.Value.CSI {
			if served[i] == driver || served[i] == "" && slices.Contains(drivers, driver) {
				count += volumes
			}
		}
		out = append(out, checkRunning(w)...)
		out = append(out, checkRate(w, count)...)
		out = append(out, checkVersion(w)...)
		out = append(out, checkTimes(w, s.Server.Value)...)
		out = append(out, checkWorkers(w, s.Server.Value, count)...)
	}
	unknown := 0
	for _, driver := range served {
		if driver == "" {
			unknown++
		}
	}
	if len(drivers) <= unknown {
		return out // each may have one of those that name no driver
	}
	seen := "no csi-snapshotter sidecar was found"
	if len(sidecars) > 0 {
		seen = fmt.Sprintf("of the %d csi-snapshotter sidecars that were found none is seen to be for it", len(sidecars))
	}
	for _, driver := range drivers {
		out = append(out, Finding{
			Severity: Warning, Reason: "SidecarNotFound", Object: "CSIDriver " + driver,
			Message: fmt.Sprintf("CSI driver %s has %d volumes, and %s: unless one runs out of sight, as on some managed clusters, no snapshot of them is ever taken.",
				driver, s.Volumes.Value.CSI[driver], seen),
			Fix: "add a csi-snapshotter container (image registry.k8s.io/sig-storage/csi-snapshotter:" + wantedTag + ") to the controller pods of driver " + driver,
		})
	}
	return out
}

// attribute guesses which sidecar serves which driver: one whose pod template names the driver, else one whose own name holds a
// part of the driver's. It returns, by sidecar, the driver, or nothing; and the drivers that are left.
func attribute(drivers []string, sidecars []Workload) (served []string, left []string) {
	served = make([]string, len(sidecars))
	left = slices.Clone(drivers)
	for _, matches := range []func(Workload, string) bool{names, resembles} {
		for i, w := range sidecars {
			if served[i] != "" {
				continue
			}
			at := slices.IndexFunc(left, func(driver string) bool { return matches(w, driver) })
			if at >= 0 {
				served[i] = left[at]
				left = slices.Delete(left, at, at+1)
			}
		}
	}
	return served, left
}

func names(w Workload, driver string) bool { return strings.Contains(w.Text, driver) }

// general are parts of drivers' names that say nothing.
var general = []string{"csi", "driver", "com", "io", "org", "net", "dev", "storage", "k8s", "kubernetes", "aws", "amazon", "azure", "google", "gke", "cloud"}

// resembles finds ebs.csi.aws.com in ebs-csi-controller.
func resembles(w Workload, driver string) bool {
	words := strings.FieldsFunc(w.Name+"-"+w.Namespace, func(r rune) bool { return r == '-' || r == '.' })
	for part := range strings.FieldsFuncSeq(driver, func(r rune) bool { return r == '.' || r == '-' }) {
		if !slices.Contains(general, part) && slices.Contains(words, part) {
			return true
		}
	}
	return false
}

func checkVersion(w Workload) []Finding {
	found, ok := versionOf(w.Image)
	fix := fmt.Sprintf("kubectl -n %s set image %s/%s %s=%s", w.Namespace, strings.ToLower(w.Kind), w.Name, w.Container, withTag(w.Image, wantedTag))
	switch {
	case !ok:
		return []Finding{{
			Severity: Info, Reason: "SidecarVersionUnknown", Object: w.object(),
			Message: fmt.Sprintf("The version of the csi-snapshotter in %s can't be told from its image %s.", w.object(), w.Image),
		}}
	case found.before(retriesInOrder):
		return []Finding{{
			Severity: Warning, Reason: "SidecarHammers", Object: w.object(), Fix: fix,
			Message: fmt.Sprintf("The csi-snapshotter in %s (%s) is older than v8.0.0: after an error it calls the driver again without a pause.", w.object(), w.Image),
		}}
	case found.before(deletesLateCuts):
		return []Finding{{
			Severity: Info, Reason: "SidecarForgetsLateCuts", Object: w.object(), Fix: fix,
			Message: fmt.Sprintf("The csi-snapshotter in %s (%s) is older than v8.6.0 and forgets snapshots that are deleted while they are being taken "+
				"(kubernetes-csi/external-snapshotter#1388): the parallel engine reminds it of its own, others stay at the storage.", w.object(), w.Image),
		}}
	}
	return nil
}

// checkTimes holds the sidecar's times against the server's.
func checkTimes(w Workload, server Server) []Finding {
	l := limitsOf(w)
	var out []Finding
	if l.callTime >= server.SnapshotTimeout {
		out = append(out, Finding{
			Severity: Warning, Reason: "SidecarCallTooLong", Object: w.object(), Fix: patchFlags(w, "timeout", defaultCallTime.String()),
			Message: fmt.Sprintf("The csi-snapshotter in %s lets one call to the driver take %s, as long as Velero waits for a snapshot (%s): a call that hangs is never tried again in time.",
				w.object(), l.callTime, server.SnapshotTimeout),
		})
	}
	if l.retryMax >= server.SnapshotTimeout {
		out = append(out, Finding{
			Severity: Warning, Reason: "SidecarRetriesTooLate", Object: w.object(), Fix: patchFlags(w, "retry-interval-max", time5m),
			Message: fmt.Sprintf("The csi-snapshotter in %s may pause up to %s between two tries, as long as Velero waits for a snapshot (%s).", w.object(), l.retryMax, server.SnapshotTimeout),
		})
	}
	return out
}

// time5m is defaultRetryMax as people write it.
const time5m = "5m"

// checkWorkers compares how many snapshots the sidecar works on with how many the server lets be in flight.
func checkWorkers(w Workload, server Server, volumes int) []Finding {
	l := limitsOf(w)
	if server.Parallelism.Disabled() || volumes == 0 {
		return nil
	}
	limit := server.Parallelism.Limit(volumes)
	if limit == 0 || limit > volumes {
		limit = volumes
	}
	if l.workers >= limit {
		return nil
	}
	return []Finding{{
		Severity: Info, Reason: "FewerWorkersThanSnapshots", Object: w.object(), Fix: patchFlags(w, "worker-threads", fmt.Sprint(limit)),
		Message: fmt.Sprintf("The csi-snapshotter in %s works on %d snapshots at a time, and --csi-snapshot-parallelism=%s lets %d of its %d volumes be in flight: the others wait in the sidecar.",
			w.object(), l.workers, server.Parallelism, limit, volumes),
	}}
}
