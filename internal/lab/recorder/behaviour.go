// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Names that the plugins are registered under.
const (
	ActionV1       = "clipper.dev/recorder-v1"
	ActionV2       = "clipper.dev/recorder-v2"
	ActionV2Second = "clipper.dev/recorder-v2-second"
	BlockAction    = "clipper.dev/recorder-block"
	Snapshotter    = "clipper.dev/recorder-snapshotter"
)

// DirVariable is the environment variable that names the plugin's folder.
const DirVariable = "CLIPPER_RECORDER_DIR"

const behaviourFile = "behaviour.yaml"

// Behaviour says what the plugins do. The zero value records and changes nothing.
type Behaviour struct {
	// Actions by plugin name without the part before the slash: recorder-v1, recorder-v2, recorder-v2-second, recorder-block.
	Actions map[string]Action `json:"actions,omitempty"`
	// Snapshotter is the native snapshots.
	Snapshotter Native `json:"snapshotter,omitzero"`
}

// Action is the behaviour of one item action.
type Action struct {
	// AppliesTo limits the items that the action is asked about. Default: all.
	AppliesTo Selector `json:"appliesTo,omitzero"`
	// AppliesToError makes the question for AppliesTo fail.
	AppliesToError string `json:"appliesToError,omitempty"`
	// Rules: the first one that matches the item counts. Without one the item is returned as it is.
	Rules []Rule `json:"rules,omitempty"`
}

// Selector is velero.ResourceSelector with names for YAML.
type Selector struct {
	IncludedNamespaces []string `json:"includedNamespaces,omitempty"`
	ExcludedNamespaces []string `json:"excludedNamespaces,omitempty"`
	IncludedResources  []string `json:"includedResources,omitempty"`
	ExcludedResources  []string `json:"excludedResources,omitempty"`
	LabelSelector      string   `json:"labelSelector,omitempty"`
}

// Rule is what an action does with the items that match.
type Rule struct {
	// Match is a pattern of path.Match for "Kind namespace/name", or "Kind name" where there is no namespace.
	Match string `json:"match"`
	// Labels and Annotations are set on the item.
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// Name is the item's new name, Namespace its new namespace.
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// Kind is what the item becomes.
	Kind string `json:"kind,omitempty"`
	// Items are returned as additional or related items: "configmaps a/x", "storageclasses.storage.k8s.io fast".
	Items []string `json:"items,omitempty"`
	// Skip sets the annotation that takes an item out of the backup, MustInclude the one that lets its additional items in.
	Skip        bool `json:"skip,omitempty"`
	MustInclude bool `json:"mustInclude,omitempty"`
	// Error is returned; Panic panics with this text; Crash ends the process; Hang waits first.
	Error string   `json:"error,omitempty"`
	Panic string   `json:"panic,omitempty"`
	Crash bool     `json:"crash,omitempty"`
	Hang  Duration `json:"hang,omitzero"`
	// Nil returns no item at all.
	Nil bool `json:"nil,omitempty"`
	// Operation is the ID of an asynchronous operation (version 2 only), PostItems its items for the finalization.
	Operation string   `json:"operation,omitempty"`
	PostItems []string `json:"postItems,omitempty"`
	// NoProgress answers nothing but an error about the operation.
	NoProgress bool `json:"noProgress,omitempty"`
	// Unfinished is how often Progress answers that the operation isn't done; OperationError is how it ends.
	Unfinished     int    `json:"unfinished,omitempty"`
	OperationError string `json:"operationError,omitempty"`
}

// Native is the behaviour of the VolumeSnapshotter.
type Native struct {
	// InitError makes Init fail.
	InitError string `json:"initError,omitempty"`
	// Volumes: the first rule that matches the PV's name counts. Without one the PV has the volume ID "vol-<name>".
	Volumes []NativeVolume `json:"volumes,omitempty"`
}

// NativeVolume is how the storage treats PVs.
type NativeVolume struct {
	// Match is a pattern of path.Match for the PV's name.
	Match string `json:"match"`
	// Foreign volumes have no ID for this plugin.
	Foreign bool `json:"foreign,omitempty"`
	// IDError, InfoError and SnapshotError fail the three calls.
	IDError       string `json:"idError,omitempty"`
	InfoError     string `json:"infoError,omitempty"`
	SnapshotError string `json:"snapshotError,omitempty"`
	// Hang is how long CreateSnapshot takes.
	Hang Duration `json:"hang,omitzero"`
	// Type and IOPS are what GetVolumeInfo says.
	Type string `json:"type,omitempty"`
	IOPS *int64 `json:"iops,omitempty"`
}

// Duration is written like 150ms.
type Duration time.Duration

// UnmarshalJSON reads a duration.
func (d *Duration) UnmarshalJSON(text []byte) error {
	parsed, err := time.ParseDuration(string(text[1 : len(text)-1]))
	*d = Duration(parsed)
	return err
}

// MarshalJSON writes a duration as UnmarshalJSON reads it.
func (d Duration) MarshalJSON() ([]byte, error) {
	return []byte(`"` + time.Duration(d).String() + `"`), nil
}

// SetBehaviour writes the behaviour of the plugins that work in a folder; the next call uses it.
func SetBehaviour(dir string, behaviour Behaviour) error {
	content, err := yaml.Marshal(behaviour)
	if err != nil {
		return fmt.Errorf("writing the recorder's behaviour: %w", err)
	}
	// Renaming shows no half of a file to a plugin.
	temporary := filepath.Join(dir, behaviourFile+".new")
	if err := os.WriteFile(temporary, content, 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(dir, behaviourFile))
}

// loadBehaviour reads the behaviour; none is the zero value.
func loadBehaviour(dir string) (Behaviour, error) {
	var out Behaviour
	content, err := os.ReadFile(filepath.Join(dir, behaviourFile))
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err == nil {
		err = yaml.UnmarshalStrict(content, &out)
	}
	return out, err
}

// rule finds what is to be done with an item; the zero Rule is nothing.
func (a Action) rule(key string) Rule {
	for _, rule := range a.Rules {
		if match(rule.Match, key) {
			return rule
		}
	}
	return Rule{}
}

// operation finds the rule that started an operation.
func (a Action) operation(id string) (Rule, bool) {
	for _, rule := range a.Rules {
		if rule.Operation == id {
			return rule, true
		}
	}
	return Rule{}, false
}

func (n Native) volume(pv string) NativeVolume {
	for _, volume := range n.Volumes {
		if match(volume.Match, pv) {
			return volume
		}
	}
	return NativeVolume{}
}

func match(pattern, key string) bool {
	matched, err := path.Match(pattern, key)
	return err == nil && matched
}

// itemKey is "Kind namespace/name", or "Kind name".
func itemKey(item *unstructured.Unstructured) string {
	if item.GetNamespace() == "" {
		return item.GetKind() + " " + item.GetName()
	}
	return item.GetKind() + " " + item.GetNamespace() + "/" + item.GetName()
}
