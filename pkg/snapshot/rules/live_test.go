// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// live is a Live that follows a ConfigMap in a fake cluster.
type live struct {
	*Live
	WithT
	client *fake.Clientset
	events *record.FakeRecorder
	log    *logrustest.Hook
}

// follow runs a test in a bubble of its own, in which time passes only when everybody waits.
func follow(t *testing.T, prepare func(*fake.Clientset), test func(*live), objects ...runtime.Object) {
	synctest.Test(t, func(t *testing.T) {
		logger, hook := logrustest.NewNullLogger()
		logger.SetLevel(logrus.DebugLevel)
		l := &live{WithT: *NewWithT(t), client: fake.NewClientset(objects...), events: record.NewFakeRecorder(100), log: hook}
		if prepare != nil {
			prepare(l.client)
		}
		l.Live = NewLive(LiveOptions{Client: l.client, Namespace: "velero", Name: DefaultConfigMap, Recorder: l.events, Logger: logger})
		ctx, stop := context.WithCancel(t.Context())
		var group errgroup.Group
		group.Go(func() error { return l.Start(ctx) })
		synctest.Wait()
		test(l)
		stop()
		l.Expect(group.Wait()).To(Succeed())
	})
}

// rule is the rule that an error meets; empty for none.
func (l *live) rule() string {
	return l.Judge(snapshot.Observation{Driver: "x", Code: internal, Message: "odd"}).Rule
}

// event returns the one event that was recorded since the last look; empty when there was none.
func (l *live) event() string {
	select {
	case event := <-l.events.Events:
		return event
	default:
		return ""
	}
}

// logged returns the lines at a level and forgets them.
func (l *live) logged(level logrus.Level) (lines []string) {
	for _, entry := range l.log.AllEntries() {
		if entry.Level == level {
			line := entry.Message
			if err, ok := entry.Data[logrus.ErrorKey]; ok {
				line += fmt.Sprintf(": %v", err)
			}
			lines = append(lines, line)
		}
	}
	l.log.Reset()
	return lines
}

func ruleText(name, when string) string {
	return fmt.Sprintf("- {name: %s, when: '%s', verdict: terminal, reason: r}\n", name, when)
}

func (l *live) write(text string) {
	ctx := context.Background()
	configMap := configMapWith(map[string]string{Key: text})
	_, err := l.client.CoreV1().ConfigMaps("velero").Update(ctx, configMap, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = l.client.CoreV1().ConfigMaps("velero").Create(ctx, configMap, metav1.CreateOptions{})
	}
	l.Expect(err).NotTo(HaveOccurred())
	synctest.Wait()
}

func TestLiveFollowsTheConfigMap(t *testing.T) {
	follow(t, nil, func(l *live) {
		l.Expect(l.rule()).To(BeEmpty())
		l.Expect(l.event()).To(BeEmpty())

		l.write(ruleText("one", "true"))
		l.Expect(l.rule()).To(Equal("one"))
		l.Expect(l.event()).To(HavePrefix("Normal SnapshotErrorRulesInForce 1 rule of the ConfigMap in force"))
		l.Expect(l.logged(logrus.InfoLevel)).To(ConsistOf(HavePrefix("Snapshot error rules: 1 rule of the ConfigMap in force")))

		l.write(ruleText("two", "true") + ruleText("bad", "words.contains(1)"))
		l.Expect(l.rule()).To(Equal("one"), "the former rules stay")
		l.Expect(l.event()).To(And(
			HavePrefix("Warning SnapshotErrorRulesRefused rule 2 (bad), line 2, column 36:"),
			HaveSuffix("what was in force stays: 1 rule of the ConfigMap and the built-in ones"),
		))
		l.Expect(l.logged(logrus.ErrorLevel)).To(ConsistOf(And(ContainSubstring("rule 2 (bad)"), ContainSubstring("column 36"), ContainSubstring("stays: 1 rule"))))

		l.write(ruleText("two", "true"))
		l.Expect(l.rule()).To(Equal("two"))
		l.Expect(l.event()).To(HavePrefix("Normal"))

		l.Expect(l.client.CoreV1().ConfigMaps("velero").Delete(context.Background(), DefaultConfigMap, metav1.DeleteOptions{})).To(Succeed())
		synctest.Wait()
		l.Expect(l.rule()).To(BeEmpty())
		l.Expect(l.logged(logrus.InfoLevel)).To(ContainElement(ContainSubstring("the built-in rules are in force")))

		l.write(ruleText("two", "true"))
		l.Expect(l.rule()).To(Equal("two"), "the same text as before counts again")
	})
}

func TestLiveStartsWithABadConfigMap(t *testing.T) {
	bad := configMapWith(map[string]string{Key: ruleText("a", "1") + strings.Repeat(ruleText("b", "x"), 40)})
	follow(t, nil, func(l *live) {
		l.Expect(l.Judge(snapshot.Observation{Driver: "x", Code: unimplemented}).Rule).To(Equal("builtin/code-unimplemented"))
		event := l.event()
		l.Expect(event).To(And(HavePrefix("Warning SnapshotErrorRulesRefused rule 1 (a), line 1"), ContainSubstring("more; what was in force stays: no rules of the ConfigMap")))
		l.Expect(len(event)).To(BeNumerically("<", maxEventMessage+50))
		l.Expect(l.logged(logrus.ErrorLevel)).To(HaveLen(maxProblems))
	}, bad)
}

func TestLiveHeedsOnlyItsConfigMap(t *testing.T) {
	other := configMapWith(map[string]string{Key: ruleText("other", "true")})
	other.Name = "other"
	elsewhere := configMapWith(map[string]string{Key: ruleText("elsewhere", "true")})
	elsewhere.Namespace = "elsewhere"
	follow(t, nil, func(l *live) {
		l.Expect(l.rule()).To(BeEmpty())
		l.Expect(l.event()).To(BeEmpty())
		l.Expect(l.client.Actions()).NotTo(BeEmpty())
		for _, action := range l.client.Actions() {
			l.Expect(action.GetNamespace()).To(Equal("velero"))
			if list, ok := action.(clienttesting.ListAction); ok {
				l.Expect(list.GetListRestrictions().Fields.String()).To(Equal("metadata.name=" + DefaultConfigMap))
			}
		}
		// It is the other one that goes.
		l.write(ruleText("mine", "true"))
		l.Expect(l.client.CoreV1().ConfigMaps("velero").Delete(context.Background(), "other", metav1.DeleteOptions{})).To(Succeed())
		synctest.Wait()
		l.Expect(l.rule()).To(Equal("mine"))
	}, other, elsewhere)
}

func TestLiveTellsNothingTwice(t *testing.T) {
	follow(t, nil, func(l *live) {
		l.write(ruleText("one", "true"))
		l.Expect(l.event()).NotTo(BeEmpty())
		labelled := configMapWith(map[string]string{Key: ruleText("one", "true")})
		labelled.Labels = map[string]string{"a": "b"}
		_, err := l.client.CoreV1().ConfigMaps("velero").Update(context.Background(), labelled, metav1.UpdateOptions{})
		l.Expect(err).NotTo(HaveOccurred())
		synctest.Wait()
		l.Expect(l.event()).To(BeEmpty())
	})
}

func TestLiveWithoutPermission(t *testing.T) {
	var allowed atomic.Bool
	forbid := func(client *fake.Clientset) {
		client.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			if allowed.Load() {
				return false, nil, nil
			}
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, DefaultConfigMap, errors.New("no role"))
		})
	}
	follow(t, forbid, func(l *live) {
		<-time.After(5 * time.Minute)
		l.Expect(l.rule()).To(BeEmpty())
		l.Expect(l.logged(logrus.ErrorLevel)).To(ConsistOf(And(
			ContainSubstring("get, list and watch on configmaps in namespace velero"), ContainSubstring("no role"),
		)), "once, however often it is tried")
		allowed.Store(true)
		<-time.After(5 * time.Minute)
		l.Expect(l.rule()).To(Equal("one"))
		l.Expect(l.logged(logrus.InfoLevel)).To(ContainElement(ContainSubstring("is watched again")))
	}, configMapWith(map[string]string{Key: ruleText("one", "true")}))
}

func TestLiveOutlivesAnAPIServerThatIsAway(t *testing.T) {
	var away atomic.Bool
	fail := func(client *fake.Clientset) {
		client.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			return away.Load(), nil, errors.New("connection refused")
		})
	}
	away.Store(true)
	follow(t, fail, func(l *live) {
		<-time.After(time.Minute)
		l.Expect(l.logged(logrus.WarnLevel)).To(HaveLen(1))
		away.Store(false)
		<-time.After(time.Minute)
		l.Expect(l.rule()).To(Equal("one"))
	}, configMapWith(map[string]string{Key: ruleText("one", "true")}))
}

func TestLiveLogsAFailingRuleOnce(t *testing.T) {
	follow(t, nil, func(l *live) {
		l.write(ruleText("broken", "attempts / 0 == 1"))
		for range 5 {
			l.Expect(l.rule()).To(BeEmpty())
		}
		l.Expect(l.logged(logrus.WarnLevel)).To(ConsistOf(ContainSubstring("rule broken could not be evaluated")))
	})
}

// Judgements go on while rules change.
func TestLiveIsSafeForManyGoroutines(t *testing.T) {
	follow(t, nil, func(l *live) {
		done := make(chan struct{})
		var group errgroup.Group
		for range 4 {
			group.Go(func() error {
				for {
					select {
					case <-done:
						return nil
					default:
						if rule := l.rule(); rule != "" && rule != "one" && rule != "two" {
							return fmt.Errorf("rule %s", rule)
						}
					}
				}
			})
		}
		for i := range 20 {
			l.take(configMapWith(map[string]string{Key: ruleText([]string{"one", "two"}[i%2], "true")}))
		}
		close(done)
		l.Expect(group.Wait()).To(Succeed())
	})
}

func TestLiveWithoutRecorder(t *testing.T) {
	l := NewLive(LiveOptions{Client: fake.NewClientset(), Namespace: "velero", Name: DefaultConfigMap})
	l.take(&corev1.ConfigMap{Data: map[string]string{Key: ruleText("one", "true")}})
	NewWithT(t).Expect(l.Set().UserRules()).To(Equal(1))
}
