// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// DefaultConfigMap is the name of the ConfigMap with the platform's rules when no other is asked for.
const DefaultConfigMap = "clipper-snapshot-error-rules"

// Reasons of the events on the ConfigMap.
const (
	// EventInForce: the rules were taken.
	EventInForce = "SnapshotErrorRulesInForce"
	// EventRefused: the rules are wrong, and the former ones stay in force.
	EventRefused = "SnapshotErrorRulesRefused"
)

// maxEventMessage is how long the API lets an event's message be.
const maxEventMessage = 1024

// resyncPeriod is how often the ConfigMap is looked at for nothing; see the tracker's of the same name.
const resyncPeriod = 12 * time.Hour

// LiveOptions are the settings of a Live. All but Recorder and Logger are required.
type LiveOptions struct {
	Client kubernetes.Interface
	// Namespace and Name are those of the ConfigMap.
	Namespace, Name string
	// Recorder takes the events on the ConfigMap; without one there are none.
	Recorder record.EventRecorder
	// Logger; the default is logrus's standard logger.
	Logger logrus.FieldLogger
}

// Live is a snapshot.Judge by the rules that are in force: those of the ConfigMap as it stands, and the built-in ones.
// A ConfigMap that is wrong changes nothing. Judge may be called from any goroutine, also before Start.
type Live struct {
	opts LiveOptions
	set  atomic.Pointer[Set]
	// last is what the ConfigMap held when it was last looked at; only the informer's goroutine uses it.
	last map[string]string

	mu sync.Mutex
	// trouble is the kind of the last failure to watch, so that each is logged once and its end too; empty for none.
	trouble string
}

// NewLive makes a Live with the built-in rules. Start makes it follow the ConfigMap.
func NewLive(opts LiveOptions) *Live {
	if opts.Logger == nil {
		opts.Logger = logrus.StandardLogger()
	}
	opts.Logger = opts.Logger.WithField("configMap", opts.Namespace+"/"+opts.Name)
	l := &Live{opts: opts}
	l.set.Store(BuiltIn())
	return l
}

// Judge implements snapshot.Judge.
func (l *Live) Judge(o snapshot.Observation) snapshot.Judgement { return l.Set().Judge(o) }

// Set returns the rules that are in force.
func (l *Live) Set() *Set { return l.set.Load() }

// Start follows the ConfigMap until ctx ends. It returns no error: whatever is wrong, there are rules in force.
func (l *Live) Start(ctx context.Context) error {
	informer := cache.NewSharedIndexInformer(l.source(), &corev1.ConfigMap{}, resyncPeriod, cache.Indexers{})
	if err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { l.unwatched(err) }); err != nil {
		return fmt.Errorf("preparing to watch the snapshot error rules: %w", err)
	}
	handle := func(object any) {
		if configMap, ok := object.(*corev1.ConfigMap); ok && configMap.Name == l.opts.Name {
			l.take(configMap)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    handle,
		UpdateFunc: func(_, object any) { handle(object) },
		DeleteFunc: func(object any) {
			if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil && key == l.opts.Namespace+"/"+l.opts.Name {
				l.deleted()
			}
		},
	})
	if err != nil {
		return fmt.Errorf("preparing to watch the snapshot error rules: %w", err)
	}
	informer.RunWithContext(ctx)
	return nil
}

// source lists and watches the one ConfigMap, and notes when that works again.
func (l *Live) source() *cache.ListWatch {
	one := fields.OneTermEqualSelector(metav1.ObjectNameField, l.opts.Name).String()
	configMaps := l.opts.Client.CoreV1().ConfigMaps(l.opts.Namespace)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = one
			list, err := configMaps.List(ctx, options)
			if err == nil && len(list.Items) == 0 {
				l.opts.Logger.Debug("There is no ConfigMap with snapshot error rules; the built-in rules are in force")
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = one
			watching, err := configMaps.Watch(ctx, options)
			if err == nil {
				l.watched()
			}
			return watching, err
		},
	}
}

// take puts the rules of the ConfigMap in force, or says why not.
func (l *Live) take(configMap *corev1.ConfigMap) {
	if l.last != nil && maps.Equal(l.last, configMap.Data) && len(configMap.BinaryData) == 0 {
		return // only its metadata changed, or it was listed anew
	}
	l.last = maps.Clone(configMap.Data)
	if l.last == nil {
		l.last = map[string]string{}
	}
	set, err := FromConfigMap(configMap)
	if err != nil {
		l.refuse(configMap, err)
		return
	}
	set.OnFailure(func(_ Rule, err error) { l.opts.Logger.WithError(err).Warn("A snapshot error rule fails") })
	l.set.Store(set)
	message := fmt.Sprintf("%s in force, before %d built-in ones", count(set.UserRules()), len(builtIn().all))
	l.opts.Logger.Info("Snapshot error rules: " + message)
	l.event(configMap, corev1.EventTypeNormal, EventInForce, message)
}

func (l *Live) refuse(configMap *corev1.ConfigMap, err error) {
	stays := fmt.Sprintf("what was in force stays: %s and the built-in ones", count(l.Set().UserRules()))
	problems := []error{err}
	var wrong *ParseError
	if errors.As(err, &wrong) {
		problems = problems[:0]
		for _, problem := range wrong.Problems {
			problems = append(problems, problem)
		}
	}
	for i, problem := range problems {
		if i == maxProblems {
			break
		}
		l.opts.Logger.Errorf("Snapshot error rules refused: %v; %s", problem, stays)
	}
	message := problems[0].Error()
	if len(problems) > 1 {
		stays = fmt.Sprintf("and %d more; %s", len(problems)-1, stays)
	}
	if room := maxEventMessage - len(stays) - len("...; "); len(message) > room {
		message = message[:room] + "..."
	}
	l.event(configMap, corev1.EventTypeWarning, EventRefused, message+"; "+stays)
}

func (l *Live) deleted() {
	l.last = nil
	l.set.Store(BuiltIn())
	l.opts.Logger.Info("The ConfigMap with snapshot error rules is gone; the built-in rules are in force")
}

func (l *Live) event(configMap *corev1.ConfigMap, kind, reason, message string) {
	if l.opts.Recorder != nil {
		l.opts.Recorder.Event(configMap, kind, reason, message)
	}
}

// unwatched notes a failure to list or watch. The informer tries again, at growing intervals, for as long as it takes.
func (l *Live) unwatched(err error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, context.Canceled) {
		return // part of watching: it is listed anew
	}
	kind := "unreachable"
	if apierrors.IsForbidden(err) {
		kind = "forbidden"
	}
	l.mu.Lock()
	known := l.trouble == kind
	l.trouble = kind
	l.mu.Unlock()
	switch {
	case known:
		l.opts.Logger.WithError(err).Debug("The ConfigMap with snapshot error rules still can't be watched")
	case kind == "forbidden":
		l.opts.Logger.WithError(err).Errorf("The ConfigMap with snapshot error rules can't be read: give the server's service account "+
			"get, list and watch on configmaps in namespace %s; what is in force stays: %s and the built-in ones",
			l.opts.Namespace, count(l.Set().UserRules()))
	default:
		l.opts.Logger.WithError(err).Warn("The ConfigMap with snapshot error rules can't be watched at the moment; what is in force stays")
	}
}

func (l *Live) watched() {
	l.mu.Lock()
	had := l.trouble != ""
	l.trouble = ""
	l.mu.Unlock()
	if had {
		l.opts.Logger.Info("The ConfigMap with snapshot error rules is watched again")
	}
}

func count(rules int) string {
	switch rules {
	case 0:
		return "no rules of the ConfigMap"
	case 1:
		return "1 rule of the ConfigMap"
	default:
		return fmt.Sprintf("%d rules of the ConfigMap", rules)
	}
}
