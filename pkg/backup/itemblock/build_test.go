// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package itemblock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/framework"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/velero-clipper/clipper/pkg/backup/collect"
	"github.com/velero-clipper/clipper/pkg/backup/filter"
	"github.com/velero-clipper/clipper/pkg/backup/itemblock"
)

// What Velero's resolver returns is what Build takes.
var _ itemblock.Action = framework.ItemBlockResolvedAction{}

// The tests name objects "resource name"; all are in namespace a. A "!" at the end marks an ordered item, "@v2" a
// version other than the preferred v1.

func id(name string) velero.ResourceIdentifier {
	resource, object, _ := strings.Cut(name, " ")
	return velero.ResourceIdentifier{GroupResource: schema.GroupResource{Resource: resource}, Namespace: "a", Name: object}
}

func item(name string) collect.Item {
	name, ordered := strings.CutSuffix(name, "!")
	name, version, found := strings.Cut(name, "@")
	if !found {
		version = "v1"
	}
	key := id(name)
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetAPIVersion(version)
	u.SetNamespace(key.Namespace)
	u.SetName(key.Name)
	made, err := collect.NewItem(&collect.Type{
		GroupResource: key.GroupResource,
		PreferredGVR:  key.GroupResource.WithVersion("v1"),
		APIVersion:    version,
	}, u)
	if err != nil {
		panic(err)
	}
	made.Ordered = ordered
	return made
}

func items(names ...string) []collect.Item {
	var out []collect.Item
	for _, name := range names {
		out = append(out, item(name))
	}
	return out
}

// show is the reverse of item, for whole blocks.
func show(blocks []*itemblock.Block) [][]string {
	var out [][]string
	for _, block := range blocks {
		var names []string
		for _, item := range block.Items {
			name := item.GroupResource.Resource + " " + item.Name
			if version := item.APIVersion; version != "v1" {
				name += "@" + version
			}
			names = append(names, name)
		}
		out = append(out, names)
	}
	return out
}

// relations is an Action that knows what belongs to what.
type relations struct {
	name    string
	related map[string][]string
	err     error
	// only, if set, is the one resource type that the action applies to.
	only  string
	asked []string
	// versions are those of the objects that it was asked about.
	versions []string
}

func (r *relations) Name() string { return r.name }

func (r *relations) ShouldUse(gr schema.GroupResource, _ string, _ metav1.Object, _ logrus.FieldLogger) bool {
	return r.only == "" || gr.Resource == r.only
}

func (r *relations) GetRelatedItems(object runtime.Unstructured, backup *velerov1.Backup) ([]velero.ResourceIdentifier, error) {
	u := object.(*unstructured.Unstructured)
	r.asked, r.versions = append(r.asked, u.GetName()), append(r.versions, u.GetAPIVersion())
	if r.err != nil || backup == nil {
		return nil, r.err
	}
	var ids []velero.ResourceIdentifier
	for _, name := range r.related[u.GetName()] {
		ids = append(ids, id(name))
	}
	return ids, nil
}

// without is a Filter that leaves out the objects of these names.
type without []string

func (w without) Includes(obj metav1.Object, _ schema.GroupResource, mustInclude bool) filter.Decision {
	if mustInclude || !slices.Contains(w, obj.GetName()) {
		return filter.Decision{In: true, Reason: filter.ReasonIncluded}
	}
	return filter.Decision{Reason: filter.ReasonExcludedByLabel, Message: "it has a label"}
}

// fixture has the cluster beyond what was collected, and records what Build does with it.
type fixture struct {
	inCluster []string
	fetchErr  error
	out       without
	actions   []*relations

	fetched  []string
	excluded []string
	log      *logrustest.Hook
}

func (f *fixture) build(ctx context.Context, collected ...string) []*itemblock.Block {
	log, hook := logrustest.NewNullLogger()
	f.log = hook
	actions := make([]itemblock.Action, 0, len(f.actions))
	for _, action := range f.actions {
		actions = append(actions, action)
	}
	return itemblock.Build(ctx, items(collected...), itemblock.Deps{
		Log:     log,
		Actions: actions,
		Backup:  &velerov1.Backup{},
		Filter:  f.out,
		Fetch: func(_ context.Context, key velero.ResourceIdentifier) (*collect.Item, error) {
			name := key.Resource + " " + key.Name
			f.fetched = append(f.fetched, name)
			if f.fetchErr != nil {
				return nil, f.fetchErr
			}
			if !slices.Contains(f.inCluster, name) {
				return nil, apierrors.NewNotFound(key.GroupResource, key.Name)
			}
			fetched := item(name)
			return &fetched, nil
		},
		Excluded: func(item collect.Item, decision filter.Decision) {
			f.excluded = append(f.excluded, item.Name+": "+decision.Reason)
		},
	})
}

func (f *fixture) lines(level logrus.Level) int {
	n := 0
	for _, entry := range f.log.AllEntries() {
		if entry.Level == level {
			n++
		}
	}
	return n
}

func TestBuild(t *testing.T) {
	type list = []string
	// p1 and p2 share c2; the claims know their volumes and their pods, as Velero's own actions do.
	volumes := map[string][]string{
		"p1": {"pvcs c1", "pvcs c2"}, "p2": {"pvcs c2"},
		"c1": {"pvs v1", "pods p1"}, "c2": {"pvs v2", "pods p1", "pods p2"},
	}
	cases := map[string]struct {
		related   map[string][]string
		inCluster list
		out       without
		items     list
		want      []list
		fetched   list
	}{
		"unrelated items: a block each (149)": {items: list{"pods p1", "secrets s"}, want: []list{{"pods p1"}, {"secrets s"}}},
		"nothing":                             {},
		"recursion; each item once; depth first (149, 152)": {
			related: volumes,
			items:   list{"pods p1", "pods p2", "pods p3", "pvcs c1", "pvcs c2", "pvs v1", "pvs v2"},
			want:    []list{{"pods p1", "pvcs c1", "pvs v1", "pvcs c2", "pvs v2", "pods p2"}, {"pods p3"}},
		},
		"related items that were not collected are fetched, once (153)": {
			related: volumes, inCluster: list{"pvs v1", "pvs v2"},
			items: list{"pods p1", "pods p2", "pvcs c1", "pvcs c2"},
			want:  []list{{"pods p1", "pvcs c1", "pvs v1", "pvcs c2", "pvs v2", "pods p2"}}, fetched: list{"pvs v1", "pvs v2"},
		},
		"what is fetched is asked about too (153)": {
			related: map[string][]string{"p1": {"pvcs c1"}, "c1": {"pvs v1"}}, inCluster: list{"pvcs c1", "pvs v1"},
			items: list{"pods p1"}, want: []list{{"pods p1", "pvcs c1", "pvs v1"}}, fetched: list{"pvcs c1", "pvs v1"},
		},
		"what is left out is in no block and brings nothing in (149)": {
			related: volumes, out: without{"c1"},
			items: list{"pods p1", "pods p2", "pvcs c1", "pvcs c2", "pvs v1", "pvs v2"},
			want:  []list{{"pods p1", "pvcs c2", "pvs v2", "pods p2"}, {"pvs v1"}},
		},
		"fetched items are checked for inclusion, once (153)": {
			related: map[string][]string{"p1": {"pvs v1"}, "p2": {"pvs v1"}}, inCluster: list{"pvs v1"}, out: without{"v1"},
			items: list{"pods p1", "pods p2"}, want: []list{{"pods p1"}, {"pods p2"}}, fetched: list{"pvs v1"},
		},
		"all versions together (150)": {
			related: map[string][]string{"p": {"things t"}},
			items:   list{"pods p", "secrets s", "things t", "things t@v2", "others o@v2", "secrets z", "others o"},
			want:    []list{{"pods p", "things t", "things t@v2"}, {"secrets s"}, {"others o@v2", "others o"}, {"secrets z"}},
		},
		"consecutive ordered items of a type share a block (157)": {
			items: list{"pods p2!", "pods p1!", "pods p3", "pvcs c1!", "pvcs c2!", "pvs v1!", "secrets s"},
			want:  []list{{"pods p2", "pods p1"}, {"pods p3"}, {"pvcs c1", "pvcs c2"}, {"pvs v1"}, {"secrets s"}},
		},
		"ordered items bring in theirs where they stand (157)": {
			related: volumes,
			items:   list{"pods p3!", "pods p2!", "pods p4!", "pods p1", "pvcs c1", "pvcs c2", "pvs v1", "pvs v2"},
			want:    []list{{"pods p3", "pods p2", "pvcs c2", "pvs v2", "pods p1", "pvcs c1", "pvs v1", "pods p4"}},
		},
		"an ordered item in an earlier block doesn't end the run (158)": {
			related: map[string][]string{"p": {"pvcs c2"}},
			items:   list{"pods p", "pvcs c1!", "pvcs c2!", "pvcs c3!"},
			want:    []list{{"pods p", "pvcs c2"}, {"pvcs c1", "pvcs c3"}},
		},
		"a run that is all elsewhere or left out gives no block (158)": {
			related: map[string][]string{"p": {"pvcs c2"}}, out: without{"c1"},
			items: list{"pods p", "pvcs c1!", "pvcs c2!", "secrets s"},
			want:  []list{{"pods p", "pvcs c2"}, {"secrets s"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f := &fixture{inCluster: tc.inCluster, out: tc.out, actions: []*relations{{related: tc.related}}}
			blocks := f.build(t.Context(), tc.items...)
			g.Expect(show(blocks)).To(Equal(tc.want))
			g.Expect(f.fetched).To(Equal(tc.fetched))
			g.Expect(f.lines(logrus.ErrorLevel)).To(BeZero())
			g.Expect(f.excluded).To(HaveLen(len(tc.out)))
			asked := slices.Clone(f.actions[0].asked)
			slices.Sort(asked)
			g.Expect(slices.Compact(slices.Clone(asked))).To(Equal(asked), "each object is asked about once (152)")
		})
	}
}

func TestOrderedFlag(t *testing.T) {
	g := NewWithT(t)
	f := &fixture{actions: []*relations{{related: map[string][]string{"p": {"pvcs c"}}}}}
	var got []bool
	for _, block := range f.build(t.Context(), "pods o!", "pods p", "pods q", "pvcs c!") {
		got = append(got, block.Ordered)
	}
	g.Expect(got).To(Equal([]bool{true, true, false}), "an ordered item makes its block ordered wherever it is")
}

func TestSeveralActions(t *testing.T) {
	g := NewWithT(t)
	f := &fixture{actions: []*relations{
		{name: "first", only: "pods", related: map[string][]string{"p": {"pvcs c"}, "c": {"secrets no"}}},
		{name: "second", related: map[string][]string{"p": {"secrets s"}, "c": {"pvs v"}}},
	}}
	g.Expect(show(f.build(t.Context(), "pods p", "secrets s", "pvcs c", "pvs v"))).
		To(Equal([][]string{{"pods p", "pvcs c", "pvs v", "secrets s"}}))
	g.Expect(f.actions[0].asked).To(Equal([]string{"p"}), "only what it applies to")
}

func TestThePreferredVersionIsAskedAbout(t *testing.T) { // 152
	for _, given := range [][]string{{"things t@v2", "things t"}, {"things t", "things t@v2"}} {
		f := &fixture{actions: []*relations{{name: "fine"}}}
		f.build(t.Context(), given...)
		NewWithT(t).Expect(f.actions[0].versions).To(Equal([]string{"v1"}), "whatever comes first")
	}
}

func TestActionError(t *testing.T) {
	g := NewWithT(t)
	f := &fixture{actions: []*relations{
		{name: "broken", err: errors.New("boom")},
		{name: "fine", related: map[string][]string{"p": {"pvcs c"}}},
	}}
	blocks := f.build(t.Context(), "pods p", "pvcs c")
	g.Expect(show(blocks)).To(Equal([][]string{{"pods p", "pvcs c"}}), "the item stays, the other actions are asked (156)")
	g.Expect(f.lines(logrus.ErrorLevel)).To(Equal(2), "one line for each item")
	entry := f.log.AllEntries()[0]
	g.Expect(entry.Data).To(And(HaveKeyWithValue("action", "broken"), HaveKeyWithValue("name", "p"), HaveKeyWithValue("resource", "pods"),
		Not(HaveKey("namespace"))), "the results file groups by that field (56)")
}

func TestFetchErrors(t *testing.T) {
	cases := map[string]struct {
		err              error
		errors, warnings int
	}{
		"not found: a warning (153)": {nil, 0, 1},
		"other: an error line (153)": {errors.New("forbidden"), 1, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f := &fixture{fetchErr: tc.err, actions: []*relations{{related: map[string][]string{"p": {"pvs gone", "secrets s"}}}}}
			g.Expect(show(f.build(t.Context(), "pods p", "secrets s"))).To(Equal([][]string{{"pods p", "secrets s"}}))
			g.Expect(f.lines(logrus.ErrorLevel)).To(Equal(tc.errors))
			g.Expect(f.lines(logrus.WarnLevel)).To(Equal(tc.warnings))
		})
	}
}

func TestExcludedIsTold(t *testing.T) {
	g := NewWithT(t)
	f := &fixture{out: without{"c"}, actions: []*relations{{related: map[string][]string{"p": {"pvcs c"}, "q": {"pvcs c"}}}}}
	f.build(t.Context(), "pods p", "pods q", "pvcs c")
	g.Expect(f.excluded).To(Equal([]string{"c: " + filter.ReasonExcludedByLabel}), "once (141)")
}

func TestContextEnds(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	f := &fixture{actions: []*relations{{related: map[string][]string{"p": {"pvs v", "secrets s"}}}}, fetchErr: context.Canceled}
	cancel()
	g.Expect(f.build(ctx, "pods p", "secrets s")).To(BeEmpty())
	g.Expect(f.fetched).To(BeEmpty())
	g.Expect(f.lines(logrus.ErrorLevel)).To(BeZero())
}

func TestBlock(t *testing.T) {
	g := NewWithT(t)
	block := &itemblock.Block{Items: items("pods p@v2", "persistentvolumeclaims c", "pods p", "pods q")}
	pods := schema.GroupResource{Resource: "pods"}

	found := block.Find(pods, "a", "p")
	g.Expect(found).To(HaveLen(2))
	g.Expect(found[0].APIVersion).To(Equal("v1"), "the preferred version first")
	g.Expect(found[1].APIVersion).To(Equal("v2"))
	g.Expect(block.Find(pods, "b", "p")).To(BeNil())
	g.Expect(block.Find(pods, "a", "c")).To(BeNil())

	g.Expect(block.Pods()).To(HaveLen(3))
	g.Expect(block.PVCs()).To(HaveLen(1))
	g.Expect(block.OfType(schema.GroupResource{Resource: "secrets"})).To(BeEmpty())
	g.Expect(block.String()).To(Equal("pods a/p and 3 more"))
	g.Expect((&itemblock.Block{Items: items("pods q")}).String()).To(Equal("pods a/q"))
	g.Expect((&itemblock.Block{}).String()).To(Equal("empty block"))
}
