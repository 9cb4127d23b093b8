// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"testing"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	internal "github.com/velero-clipper/clipper/internal/velero"
)

// policy sets the backup's own and the server's policies; either may be empty.
func (c *cluster) policy(own, global string) {
	c.t.Helper()
	config := func(document string) *corev1.ConfigMap {
		if document == "" {
			return nil
		}
		return &corev1.ConfigMap{Data: map[string]string{"policies": "version: v1\n" + document}}
	}
	var err error
	c.policies, err = internal.LoadPolicies(config(own), config(global))
	c.Expect(err).NotTo(HaveOccurred())
}

// volumePolicy returns a document with one volume policy.
func volumePolicy(conditions, action string) string {
	return "volumePolicies: [{conditions: {" + conditions + "}, action: {type: " + action + "}}]"
}

func labelled(key, value string) func(*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	return func(pvc *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
		pvc.Labels = map[string]string{key: value}
	}
}

// skipped returns the summary of skipped volumes.
func (r *run) skipped() string {
	r.c.t.Helper()
	summary, err := r.result.Volumes.SkippedSummary()
	r.c.Expect(err).NotTo(HaveOccurred())
	return summary
}

func TestVolumePolicies(t *testing.T) { // 184, 228 to 234, 367
	const (
		ofDriver = "csi: {driver: " + driver + "}"
		bySkip   = "a volume policy says that the volume is skipped"
	)
	no := false
	for name, test := range map[string]struct {
		own, global string
		spec        func(*velerov1.BackupSpec)
		snapshot    bool
		skipped     string
	}{
		"own skip":                                           {own: volumePolicy(ofDriver, "skip"), skipped: bySkip},
		"own skip by the claim":                              {own: volumePolicy("pvcLabels: {tier: cache}", "skip"), skipped: bySkip},
		"own skip of something else":                         {own: volumePolicy("storageClass: [other]", "skip"), snapshot: true},
		"own snapshot, though the spec says no":              {own: volumePolicy(ofDriver, "snapshot"), spec: func(s *velerov1.BackupSpec) { s.SnapshotVolumes = &no }, snapshot: true},
		"own snapshot by the claim, though the spec says no": {own: volumePolicy("pvcLabels: {tier: cache}", "snapshot"), spec: func(s *velerov1.BackupSpec) { s.SnapshotVolumes = &no }, snapshot: true},
		"no match, and the spec says no":                     {own: volumePolicy("storageClass: [other]", "snapshot"), spec: func(s *velerov1.BackupSpec) { s.SnapshotVolumes = &no }, skipped: "backup's spec"},
		"custom":                                             {own: volumePolicy(ofDriver, "custom"), skipped: "custom action"},
		"global skip":                                        {global: volumePolicy(ofDriver, "skip"), skipped: bySkip},
		"global snapshot, though the spec says no (367)":     {global: volumePolicy(ofDriver, "snapshot"), spec: func(s *velerov1.BackupSpec) { s.SnapshotVolumes = &no }, snapshot: true},
		"own snapshot before global skip":                    {own: volumePolicy(ofDriver, "snapshot"), global: volumePolicy("", "skip"), snapshot: true},
		"own skip before global snapshot":                    {own: volumePolicy(ofDriver, "skip"), global: volumePolicy(ofDriver, "snapshot"), skipped: bySkip},
		"global skip where the own says nothing":             {own: volumePolicy("storageClass: [other]", "snapshot"), global: volumePolicy(ofDriver, "skip"), skipped: bySkip},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.claim("data", labelled("tier", "cache"))
				c.add(pod("db", "data"))
				c.policy(test.own, test.global)
				if test.spec != nil {
					test.spec(&c.backup.Spec)
				}
				r := c.take()
				c.Expect(c.errors()).To(BeEmpty())
				c.Expect(c.warnings()).To(BeEmpty())
				c.Expect(r.files()).To(ContainElements("pods app/db", "persistentvolumeclaims app/data", "persistentvolumes pv-data"))
				if test.snapshot {
					c.Expect(c.events.all()).To(Equal([]string{"create data", "cut data"}))
					c.Expect(r.skipped()).NotTo(ContainSubstring("pv-data"))
					return
				}
				c.Expect(c.taker.requests()).To(BeEmpty())
				c.Expect(r.skipped()).To(And(ContainSubstring("pv-data"), ContainSubstring(test.skipped)))
			})
		})
	}
}

func TestAPolicyOnAHookedPodsClaim(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.claim("data")
		c.claim("cache", labelled("tier", "cache"))
		c.add(hooked("db", "data", "cache"), hooked("web"))
		c.policy(volumePolicy("pvcLabels: {tier: cache}", "skip"), "")
		r := c.take()
		c.Expect(c.events.all()).To(Equal([]string{
			"freeze app/db", "create data", "cut data", "thaw app/db", "freeze app/web", "thaw app/web", // hooks run without snapshots, too (222)
		}))
		c.Expect(r.files()).To(ContainElements("pods app/db", "persistentvolumeclaims app/cache", "persistentvolumeclaims app/data"))
		c.Expect(r.skipped()).To(And(ContainSubstring("pv-cache"), Not(ContainSubstring("pv-data"))))
		c.Expect(c.errors()).To(BeEmpty())
	})
}

func TestPoliciesOnClaimsWithoutAVolume(t *testing.T) { // 230, 240
	pending := func(pvc *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
		pvc.Status.Phase, pvc.Spec.VolumeName = corev1.ClaimPending, ""
		pvc.Labels = map[string]string{"tier": "cache"}
	}
	warned := ConsistOf(And(ContainSubstring("app/data"), ContainSubstring("not bound")))
	for name, test := range map[string]struct {
		policy   string
		warnings OmegaMatcher
	}{
		"skipped by its labels":          {volumePolicy("pvcLabels: {tier: cache}", "skip"), BeEmpty()},
		"skipped by its phase":           {volumePolicy("pvcPhase: [Pending, Lost]", "skip"), BeEmpty()},
		"left to a custom action":        {volumePolicy("pvcPhase: [Pending]", "custom"), BeEmpty()},
		"to be snapshotted":              {volumePolicy("pvcPhase: [Pending]", "snapshot"), warned},
		"no policy for it":               {volumePolicy("pvcPhase: [Bound]", "skip"), warned},
		"one for volumes of some size":   {volumePolicy(`capacity: "1Gi,10Gi"`, "skip"), warned},
		"one for volumes up to a size":   {volumePolicy(`capacity: ",10Gi"`, "skip"), BeEmpty()},
		"one for volumes of some driver": {volumePolicy("csi: {driver: "+driver+"}", "skip"), warned},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.claim("data", pending)
				c.add(pod("db", "data"))
				c.policy(test.policy, "")
				r := c.take()
				c.Expect(c.taker.requests()).To(BeEmpty())
				c.Expect(r.files()).To(ContainElements("pods app/db", "persistentvolumeclaims app/data"))
				c.Expect(c.errors()).To(BeEmpty())
				c.Expect(c.warnings()).To(test.warnings)
			})
		})
	}
}

func TestASkippedClaimWhoseVolumeIsGone(t *testing.T) { // 184
	inCluster(t, func(c *cluster) {
		c.claim("data", func(_ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) { pv.Name = "another" })
		c.policy(volumePolicy("pvcPhase: [Bound]", "skip"), "")
		r := c.take()
		c.Expect(r.files()).NotTo(ContainElement("persistentvolumeclaims app/data"))
		c.Expect(c.errors()).To(ConsistOf(And(HavePrefix("data: "), ContainSubstring("pv-data"))), "one line for the cause")
	})
}

func TestTheVSphereActionIsNotCalledForSkippedClaims(t *testing.T) { // 184
	for name, policy := range map[string]string{
		"with policies":    volumePolicy("pvcLabels: {tier: cache}", "skip"),
		"without policies": "",
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.claims("data")
				c.claim("cache", labelled("tier", "cache"))
				c.policy(policy, "")
				called := map[string][]string{}
				for _, plugin := range []string{"velero.io/vsphere-pvc-backupper", "example.com/other"} {
					c.plugin(plugin, func(item *unstructured.Unstructured) (*answer, error) {
						called[plugin] = append(called[plugin], item.GetName())
						return nil, nil
					}, "persistentvolumeclaims")
				}
				r := c.take()
				c.Expect(called["example.com/other"]).To(ConsistOf("data", "cache"))
				if policy == "" {
					c.Expect(called["velero.io/vsphere-pvc-backupper"]).To(ConsistOf("data", "cache"))
					return
				}
				c.Expect(called["velero.io/vsphere-pvc-backupper"]).To(ConsistOf("data"))
				c.Expect(r.skipped()).To(And(ContainSubstring("pv-cache"), Not(ContainSubstring("pv-data"))))
			})
		})
	}
}

func TestFileSystemBackupsThatPoliciesWant(t *testing.T) { // 246 to 248
	for name, test := range map[string]struct {
		policy    string
		annotated bool
		phase     corev1.PodPhase
		snapshot  bool
		made      bool
		warnings  OmegaMatcher
	}{
		"fs-backup of its volume":                    {policy: volumePolicy("pvcLabels: {tier: cache}", "fs-backup"), made: true, warnings: BeEmpty()},
		"fs-backup of another":                       {policy: volumePolicy("storageClass: [other]", "fs-backup"), snapshot: true, warnings: BeEmpty()},
		"an annotation that a policy overrules":      {policy: volumePolicy("pvcLabels: {tier: cache}", "snapshot"), annotated: true, snapshot: true, warnings: BeEmpty()},
		"an annotation that no policy overrules":     {policy: volumePolicy("storageClass: [other]", "skip"), annotated: true, made: true, warnings: BeEmpty()},
		"a pod that doesn't run has nothing to read": {policy: volumePolicy("pvcLabels: {tier: cache}", "fs-backup"), phase: corev1.PodSucceeded, warnings: ConsistOf(And(HavePrefix("db: "), ContainSubstring("data")))},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.withNodeAgent()
				c.claim("data", labelled("tier", "cache"))
				p := mounted(pod("db", "data"))
				p.Spec.Volumes = append(p.Spec.Volumes, *builder.ForVolume("host").Result())
				p.Spec.Volumes[1].HostPath = &corev1.HostPathVolumeSource{Path: "/"}
				if test.phase != "" {
					p.Status.Phase = test.phase
				}
				if test.annotated {
					p.Annotations = map[string]string{velerov1.VolumesToBackupAnnotation: "data,host,gone"}
				}
				c.add(p)
				c.policy(test.policy, "")
				r := c.take()
				c.Expect(c.taker.requests()).To(HaveLen(map[bool]int{true: 1}[test.snapshot]))
				c.Expect(c.events.all("pvb")).To(HaveLen(map[bool]int{true: 1}[test.made]))
				c.Expect(c.errors()).To(BeEmpty())
				c.Expect(c.warnings()).To(test.warnings)
				c.Expect(r.files()).To(ContainElements("persistentvolumeclaims app/data", "pods app/db"))
			})
		})
	}
}

func TestVolumesThatCannotBeFileSystemBackedUpAreNotRefused(t *testing.T) { // 245, 248
	inCluster(t, func(c *cluster) {
		p := pod("db")
		p.Spec.Volumes = []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		p.Annotations = map[string]string{velerov1.VolumesToBackupAnnotation: "host,gone"}
		c.add(p)
		c.Expect(c.take().files()).To(ContainElement("pods app/db"))
		c.Expect(c.errors()).To(BeEmpty())
	})
}

func TestFilterPoliciesOfABackup(t *testing.T) { // 99, 121, 145
	inCluster(t, func(c *cluster) {
		c.add(builder.ForConfigMap("app", "wanted").Result(), builder.ForConfigMap("app", "other").Result(),
			builder.ForSecret("app", "secret").Result(), pod("web"), pod("db"))
		c.policy(`
includeExcludePolicy: {excludedNamespaceScopedResources: [secrets]}
namespacedFilterPolicies:
- namespaces: ["a*"]
  resourceFilters: [{kinds: [configmaps], names: ["want*"]}]
`, "")
		// What a plugin asks for passes when its kind isn't listed, and not when its name is kept out.
		c.plugin("asks", bringsIn("wanted", named("pods", "app", "db"), named("configmaps", "app", "other"), named("secrets", "app", "secret")), "configmaps")
		r := c.take()
		c.Expect(r.files()).To(ConsistOf("configmaps app/wanted", "pods app/db", "namespaces app"))
		c.Expect(c.errors()).To(BeEmpty())
	})
}
