// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// gkeZoneKey may name several zones, those of a regional disk.
const gkeZoneKey = "topology.gke.io/zone"

// zoneKeys are the topology keys by which provisioners bind a volume to a zone.
var zoneKeys = []string{
	corev1.LabelTopologyZone,
	corev1.LabelFailureDomainBetaZone,
	"topology.ebs.csi.aws.com/zone",
	"topology.disk.csi.azure.com/zone",
	"topology.cinder.csi.openstack.org/zone",
	"topology.manila.csi.openstack.org/zone",
	gkeZoneKey,
}

// zoneOf returns the zone of a volume for its snapshotter plugin: that of its labels, else that of its node affinity, of
// which GKE's plugin takes several, joined by "__" (263). Empty: nobody says.
func zoneOf(pv *corev1.PersistentVolume) string {
	for _, label := range []string{corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaZone} {
		if zone, ok := pv.Labels[label]; ok {
			return zone
		}
	}
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return ""
	}
	var several []string
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			switch {
			case e.Operator != corev1.NodeSelectorOpIn || len(e.Values) == 0 || !slices.Contains(zoneKeys, e.Key):
			case e.Key == gkeZoneKey:
				several = append(several, e.Values[0])
			default:
				return e.Values[0]
			}
		}
	}
	return strings.Join(several, "__")
}
