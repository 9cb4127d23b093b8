// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package freezerecord

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/velero-clipper/clipper/pkg/hook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// faulty answers writes with errors, as many as it is given.
type faulty struct {
	mu    sync.Mutex
	errs  []error
	after bool // the write happens all the same
	calls int
}

func (f *faulty) next() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if len(f.errs) == 0 {
		return nil
	}
	err := f.errs[0]
	f.errs = f.errs[1:]
	return err
}

func (f *faulty) do(write func() error) error {
	err := f.next()
	if err == nil {
		return write()
	}
	if f.after {
		_ = write()
	}
	return err
}

type harness struct {
	*WithT
	client client.Client
	faulty *faulty
	store  *Store
	backup *velerov1.Backup
	record *Record
	log    logrus.FieldLogger
	lines  *logrustest.Hook
}

func setup(t *testing.T) *harness {
	scheme := runtime.NewScheme()
	h := &harness{WithT: NewWithT(t), faulty: &faulty{}}
	h.Expect(corev1.AddToScheme(scheme)).To(Succeed())
	h.client = fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return h.faulty.do(func() error { return c.Create(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return h.faulty.do(func() error { return c.Patch(ctx, o, p, opts...) })
		},
	}).Build()
	h.store = NewStore(Options{Client: h.client, Namespace: "velero", Server: "velero-0_ab12", Clock: clocktesting.NewFakePassiveClock(noon)})
	h.backup = &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "nightly", UID: "b-uid"}}
	h.store.maxPart = 5 << 10
	h.record = h.store.Open(h.backup)
	h.log, h.lines = logrustest.NewNullLogger()
	return h
}

func (h *harness) configMaps() []corev1.ConfigMap {
	var list corev1.ConfigMapList
	h.Expect(h.client.List(context.Background(), &list)).To(Succeed())
	return list.Items
}

func pod(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": "app", "name": name, "uid": "uid-" + name},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "main"}}},
	}}
}

func thawBy(commands ...string) []hook.Hook {
	var hooks []hook.Hook
	for i, command := range commands {
		hooks = append(hooks, hook.Hook{Source: hook.SourceSpec, Name: "db", Index: i, Exec: velerov1.ExecHook{
			Command: []string{"sh", "-c", command}, OnError: velerov1.HookErrorModeFail, Timeout: metav1.Duration{Duration: time.Minute},
		}})
	}
	return hooks
}

func TestARecordCanBeReadByPeople(t *testing.T) {
	h := setup(t)
	h.Expect(h.configMaps()).To(BeEmpty(), "nothing before a freeze")
	h.Expect(h.record.Frozen(t.Context(), pod("db-0"), thawBy("thaw"))).To(Succeed())
	maps := h.configMaps()
	h.Expect(maps).To(HaveLen(1))
	record := maps[0]
	h.Expect(record.Namespace + "/" + record.Name).To(Equal("velero/velero-frozen-b-uid"))
	h.Expect(record.Labels).To(Equal(map[string]string{
		"velero.io/freeze-record": "true", "velero.io/backup-name": "nightly", "velero.io/backup-uid": "b-uid",
		"velero.io/exclude-from-backup": "true",
	}))
	h.Expect(record.Annotations).To(And(HaveKeyWithValue("velero.io/backup", "nightly"), HaveKeyWithValue("velero.io/server", "velero-0_ab12")))
	h.Expect(record.OwnerReferences).To(ConsistOf(metav1.OwnerReference{APIVersion: "velero.io/v1", Kind: "Backup", Name: "nightly", UID: "b-uid"}))
	h.Expect(record.Finalizers).To(ConsistOf(Finalizer))
	h.Expect(record.Data).To(Equal(map[string]string{"app_db-0": `frozenSince: "2026-03-01T12:00:00Z"
namespace: app
pod: db-0
thaw:
- command:
  - sh
  - -c
  - thaw
  container: main
  hook: '"db" (number 0)'
  onError: Fail
  timeout: 1m0s
uid: uid-db-0
`}))
}

func TestThawedClearsAndCloseRemoves(t *testing.T) {
	h := setup(t)
	ctx := t.Context()
	h.Expect(h.record.Frozen(ctx, pod("a"), thawBy("thaw"))).To(Succeed())
	h.Expect(h.record.Frozen(ctx, pod("b"), thawBy("thaw"))).To(Succeed())
	h.Expect(h.record.Thawed(ctx, pod("a"), nil)).To(Succeed())
	h.Expect(h.configMaps()[0].Data).To(And(HaveLen(1), HaveKey("app_b")))
	h.Expect(h.record.Thawed(ctx, pod("b"), nil)).To(Succeed())
	h.Expect(h.record.Thawed(ctx, pod("never-frozen"), nil)).To(Succeed())
	h.Expect(h.store.IsOpen("b-uid")).To(BeTrue())
	ended, cancel := context.WithCancel(ctx)
	cancel()
	h.record.Close(ended, h.log)
	h.Expect(h.configMaps()).To(BeEmpty(), "also when the backup was cancelled")
	h.Expect(h.store.IsOpen("b-uid")).To(BeFalse())
	h.Expect(h.lines.AllEntries()).To(BeEmpty())
}

func TestWhatIsOwedStays(t *testing.T) {
	h := setup(t)
	ctx := t.Context()
	h.Expect(h.record.Frozen(ctx, pod("a"), thawBy("first", "second"))).To(Succeed())
	h.Expect(h.record.Thawed(ctx, pod("a"), thawBy("first", "second")[1:])).To(Succeed())
	h.record.Close(ctx, h.log)
	h.Expect(h.lines.LastEntry().Message).To(ContainSubstring("still to be thawed"))

	found, err := h.store.List(ctx)
	h.Expect(err).NotTo(HaveOccurred())
	h.Expect(found).To(HaveLen(1))
	h.Expect(found[0].Backup).To(Equal("nightly"))
	h.Expect(found[0].Server).To(Equal("velero-0_ab12"))
	h.Expect(found[0].Pods).To(HaveLen(1))
	h.Expect(found[0].Pods[0].Commands()).To(Equal([]hook.Command{{
		Namespace: "app", Pod: "a", UID: "uid-a", Container: "main", Argv: []string{"sh", "-c", "second"}, Timeout: time.Minute, Insist: true,
	}}))
}

func TestWritesAreRepeated(t *testing.T) {
	configMaps := schema.GroupResource{Resource: "configmaps"}
	passing := map[string]error{
		"429":                apierrors.NewTooManyRequests("later", 1),
		"503":                apierrors.NewServiceUnavailable("no etcd"),
		"500":                apierrors.NewInternalError(errors.New("etcd changed its leader")),
		"the server's limit": apierrors.NewTimeoutError("too slow", 1),
		"our limit":          context.DeadlineExceeded,
	}
	for name, fault := range passing {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, written all the same: %t", name, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := setup(t)
					h.faulty.errs, h.faulty.after = []error{fault, fault}, after
					h.Expect(h.record.Frozen(t.Context(), pod("a"), thawBy("thaw"))).To(Succeed())
					h.faulty.errs = []error{fault}
					h.Expect(h.record.Frozen(t.Context(), pod("b"), thawBy("thaw"))).To(Succeed())
					h.Expect(h.configMaps()[0].Data).To(And(HaveLen(2), HaveKey("app_a"), HaveKey("app_b")))
				})
			})
		}
	}
	t.Run("not what doesn't pass", func(t *testing.T) {
		h := setup(t)
		h.faulty.errs = []error{apierrors.NewForbidden(configMaps, "x", errors.New("no right"))}
		err := h.record.Frozen(t.Context(), pod("a"), thawBy("thaw"))
		h.Expect(err).To(MatchError(And(ContainSubstring("pod app/a"), ContainSubstring("velero/velero-frozen-b-uid"), ContainSubstring("no right"))))
		h.Expect(h.faulty.calls).To(Equal(1))
	})
	t.Run("not for ever, and what may have been written is cleared", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := setup(t)
			for range 1000 {
				h.faulty.errs = append(h.faulty.errs, passing["503"])
			}
			h.faulty.after = true
			begun := time.Now()
			h.Expect(h.record.Frozen(t.Context(), pod("a"), thawBy("thaw"))).To(MatchError(ContainSubstring("no etcd")))
			h.Expect(time.Since(begun)).To(BeNumerically("~", allTries, time.Second))
			h.faulty.errs = nil
			h.record.Close(t.Context(), h.log)
			h.Expect(h.configMaps()).To(BeEmpty())
		})
	})
	t.Run("not past the end of the backup", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := setup(t)
			for range 1000 {
				h.faulty.errs = append(h.faulty.errs, passing["503"])
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			begun := time.Now()
			h.Expect(h.record.Frozen(ctx, pod("a"), thawBy("thaw"))).NotTo(Succeed())
			h.Expect(time.Since(begun)).To(BeNumerically("<=", time.Second))
		})
	})
}

func TestAnEntryThatCouldNotBeRemovedIsRemovedAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := setup(t)
		h.Expect(h.record.Frozen(t.Context(), pod("a"), thawBy("thaw"))).To(Succeed())
		for range 1000 {
			h.faulty.errs = append(h.faulty.errs, apierrors.NewServiceUnavailable("no etcd"))
		}
		h.Expect(h.record.Thawed(t.Context(), pod("a"), nil)).NotTo(Succeed())
		h.faulty.errs = nil
		h.record.Close(t.Context(), h.log)
		h.Expect(h.configMaps()).To(BeEmpty())
		h.Expect(h.lines.AllEntries()).To(BeEmpty(), "it is thawed")
	})
}

func TestALargeRecordIsDivided(t *testing.T) {
	h := setup(t)
	ctx := t.Context()
	long := strings.Repeat("x", 2<<10)
	const pods = 7
	for i := range pods {
		h.Expect(h.record.Frozen(ctx, pod(fmt.Sprint("p", i)), thawBy(long))).To(Succeed())
	}
	maps := h.configMaps()
	h.Expect(maps).To(HaveLen(4))
	for _, m := range maps {
		size := 0
		for key, text := range m.Data {
			size += len(key) + len(text)
		}
		h.Expect(size).To(BeNumerically("<=", h.store.maxPart))
	}
	found, err := h.store.List(ctx)
	h.Expect(err).NotTo(HaveOccurred())
	h.Expect(found).To(HaveLen(1))
	h.Expect(found[0].Pods).To(HaveLen(pods))

	h.Expect(h.record.Frozen(ctx, pod("huge"), thawBy(long, long, long))).To(MatchError(ContainSubstring("can be recorded")))
	for i := range pods {
		h.Expect(h.record.Thawed(ctx, pod(fmt.Sprint("p", i)), nil)).To(Succeed())
	}
	h.Expect(h.record.Frozen(ctx, pod("again"), thawBy(long))).To(Succeed(), "into a part that has room again")
	h.Expect(h.configMaps()).To(HaveLen(4))
	h.Expect(h.record.Thawed(ctx, pod("again"), nil)).To(Succeed())
	h.record.Close(ctx, h.log)
	h.Expect(h.configMaps()).To(BeEmpty())
}

func TestARecordThatGoesFromOnePartToAnother(t *testing.T) {
	h := setup(t)
	ctx := t.Context()
	h.Expect(h.record.Frozen(ctx, pod("a"), thawBy("short"))).To(Succeed())
	h.Expect(h.record.Frozen(ctx, pod("b"), thawBy(strings.Repeat("x", 4900)))).To(Succeed())
	h.Expect(h.record.Frozen(ctx, pod("a"), thawBy(strings.Repeat("y", 1<<10)))).To(Succeed())
	found, err := h.store.List(ctx)
	h.Expect(err).NotTo(HaveOccurred())
	h.Expect(found[0].Pods).To(HaveLen(2), "each pod once")
}

func TestManyPodsAtOnce(t *testing.T) {
	h := setup(t)
	var group errgroup.Group
	const pods = 20
	for i := range pods {
		group.Go(func() error { return h.record.Frozen(t.Context(), pod(fmt.Sprint("p", i)), thawBy("thaw")) })
	}
	h.Expect(group.Wait()).To(Succeed())
	h.Expect(h.configMaps()).To(ConsistOf(HaveField("Data", HaveLen(pods))))
	for i := range pods {
		group.Go(func() error { return h.record.Thawed(t.Context(), pod(fmt.Sprint("p", i)), nil) })
	}
	h.Expect(group.Wait()).To(Succeed())
	h.record.Close(t.Context(), h.log)
	h.Expect(h.configMaps()).To(BeEmpty())
}

func TestARecordThatSomebodyDeletedIsMadeAgain(t *testing.T) {
	h := setup(t)
	ctx := t.Context()
	h.Expect(h.record.Frozen(ctx, pod("a"), thawBy("thaw"))).To(Succeed())
	h.Expect(remove(ctx, h.client, types.NamespacedName{Namespace: "velero", Name: "velero-frozen-b-uid"}, nil)).To(Succeed())
	h.Expect(h.record.Frozen(ctx, pod("b"), thawBy("thaw"))).To(Succeed())
	h.Expect(h.configMaps()).To(ConsistOf(HaveField("Data", And(HaveLen(2), HaveKey("app_a")))))
}

func TestARecordOutlivesItsBackup(t *testing.T) {
	h := setup(t)
	ctx := t.Context()
	h.Expect(h.record.Frozen(ctx, pod("a"), thawBy("thaw"))).To(Succeed())
	h.Expect(h.client.Delete(ctx, &h.configMaps()[0])).To(Succeed()) // as the garbage collector does
	h.Expect(h.configMaps()).To(HaveLen(1))
	h.Expect(h.record.Thawed(ctx, pod("a"), nil)).To(Succeed())
	h.record.Close(ctx, h.log)
	h.Expect(h.configMaps()).To(BeEmpty())
}

func TestLongNames(t *testing.T) {
	g := NewWithT(t)
	long := strings.Repeat("p", 253)
	g.Expect(keyOf("app", "db-0")).To(Equal("app_db-0"))
	g.Expect(keyOf("app", long)).To(HaveLen(maxKey))
	g.Expect(keyOf("app", long)).NotTo(Equal(keyOf("app", long[:252]+"q")))
}

func TestARecovery(t *testing.T) {
	h := setup(t)
	ctx := t.Context()
	for _, name := range []string{"a", "b"} {
		h.Expect(h.record.Frozen(ctx, pod(name), thawBy("first", "second"))).To(Succeed())
	}
	list := func() *Stored {
		found, err := h.store.List(ctx)
		h.Expect(err).NotTo(HaveOccurred())
		h.Expect(found).To(HaveLen(1))
		return found[0]
	}
	record := list()
	h.Expect(record.IsSettled()).To(BeFalse())
	h.Expect(record.Settle(ctx, record.Pods[0], noon.Add(time.Hour), "")).To(Succeed())
	h.Expect(record.Reduce(ctx, record.Pods[1], []int{1})).To(Succeed())

	again := list() // by the next server, when this one is killed meanwhile
	h.Expect(again.IsSettled()).To(BeFalse())
	h.Expect(again.Pods[0].ThawedAt.Time).To(BeTemporally("==", noon.Add(time.Hour)))
	h.Expect(again.Pods[1].Commands()).To(HaveExactElements(HaveField("Argv", []string{"sh", "-c", "second"})))
	h.Expect(again.Settle(ctx, again.Pods[1], noon, "exit code 1")).To(Succeed())
	h.Expect(list().IsSettled()).To(BeTrue())
	h.Expect(list().Pods[1].Outcome).To(Equal("exit code 1"))
	h.Expect(again.Delete(ctx)).To(Succeed())
	h.Expect(again.Delete(ctx)).To(Succeed(), "twice")
	h.Expect(h.configMaps()).To(BeEmpty())
}

func TestAnEntryThatNobodyUnderstandsIsNamed(t *testing.T) {
	h := setup(t)
	ctx := t.Context()
	h.Expect(h.record.Frozen(ctx, pod("a"), thawBy("thaw"))).To(Succeed())
	m := h.configMaps()[0]
	m.Data["app_b"] = "thaw: by hand"
	h.Expect(h.client.Update(ctx, &m)).To(Succeed())
	found, err := h.store.List(ctx)
	h.Expect(err).NotTo(HaveOccurred())
	h.Expect(found[0].Pods).To(HaveLen(1))
	h.Expect(found[0].Unreadable).To(ConsistOf(MatchError(ContainSubstring("key app_b of ConfigMap velero/velero-frozen-b-uid"))))
	h.Expect(found[0].Settle(ctx, found[0].Pods[0], noon, "")).To(Succeed())
	h.Expect(found[0].IsSettled()).To(BeFalse())
}

func TestAnEntryWhoseThawIsOwedStays(t *testing.T) {
	h := setup(t)
	hooks := thawBy("thaw", "resume")
	h.Expect(h.record.Frozen(t.Context(), pod("db"), hooks)).To(Succeed())
	h.faulty.errs = []error{apierrors.NewForbidden(schema.GroupResource{}, "x", nil)}
	h.Expect(h.record.Thawed(t.Context(), pod("db"), hooks[:1])).NotTo(Succeed(), "it can't be noted that the second has run")
	h.record.Close(t.Context(), h.log)
	stored, err := h.store.List(t.Context())
	h.Expect(err).NotTo(HaveOccurred())
	h.Expect(stored).To(HaveLen(1))
	h.Expect(stored[0].Pods).To(HaveLen(1), "the pod is frozen")
	h.Expect(stored[0].Pods[0].Thaw).To(HaveLen(2), "both are run again")
}

func TestARecordThatHasANewEntryIsNotDeleted(t *testing.T) {
	h := setup(t)
	h.Expect(h.record.Frozen(t.Context(), pod("a"), thawBy("thaw"))).To(Succeed())
	stored, err := h.store.List(t.Context())
	h.Expect(err).NotTo(HaveOccurred())
	h.Expect(stored[0].Settle(t.Context(), stored[0].Pods[0], noon, "")).To(Succeed())
	h.Expect(h.record.Frozen(t.Context(), pod("b"), thawBy("thaw"))).To(Succeed(), "by the backup when it is run again")
	h.Expect(stored[0].Delete(t.Context())).To(MatchError(ContainSubstring("app/b, which has still to be thawed")))
	again, err := h.store.List(t.Context())
	h.Expect(err).NotTo(HaveOccurred())
	h.Expect(again[0].Pods).To(HaveLen(2))
}

func TestARecordThatIsTakenOverNamesTheNewServer(t *testing.T) {
	h := setup(t)
	h.Expect(h.record.Frozen(t.Context(), pod("a"), thawBy("thaw"))).To(Succeed())
	next := NewStore(Options{Client: h.store.Client, Namespace: h.store.Namespace, Server: "next-0_1", Clock: h.store.Clock})
	h.Expect(next.Open(h.record.backup).Frozen(t.Context(), pod("b"), thawBy("thaw"))).To(Succeed())
	found, err := next.List(t.Context())
	h.Expect(err).NotTo(HaveOccurred())
	h.Expect(found).To(HaveLen(1))
	h.Expect(found[0].Server).To(Equal("next-0_1"))
	h.Expect(found[0].Pods).To(HaveLen(2))
}
