// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	"github.com/vmware-tanzu/velero/pkg/builder"
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// asked is an action that applies to pods of a namespace, and counts how often it is asked.
type asked struct{ times int }

func (*asked) Name() string { return "asked" }

func (a *asked) ShouldUse(gr schema.GroupResource, namespace string, metadata metav1.Object, _ logrus.FieldLogger) bool {
	a.times++
	return gr == kuberesource.Pods && namespace == "app" && metadata == nil
}

func TestWhatAnActionAppliesToIsAskedOnce(t *testing.T) {
	g := NewWithT(t)
	action := &asked{}
	scope := newScope(action, labels.SelectorFromSet(labels.Set{"tier": "db"}))
	db := builder.ForPod("app", "db").ObjectMeta(builder.WithLabels("tier", "db")).Result()
	web := builder.ForPod("app", "web").Result()
	for range 2 {
		g.Expect(scope.ShouldUse(kuberesource.Pods, "app", db, logrus.New())).To(BeTrue())
		g.Expect(scope.ShouldUse(kuberesource.Pods, "app", web, logrus.New())).To(BeFalse(), "labels are looked at each time")
		g.Expect(scope.ShouldUse(kuberesource.Pods, "other", db, logrus.New())).To(BeFalse())
		g.Expect(scope.ShouldUse(kuberesource.Secrets, "app", db, logrus.New())).To(BeFalse())
	}
	g.Expect(action.times).To(Equal(3))
	g.Expect(scope.Name()).To(Equal("asked"))
}
