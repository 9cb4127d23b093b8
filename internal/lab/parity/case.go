// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/velero-clipper/clipper/internal/lab/driver"
	"github.com/velero-clipper/clipper/internal/lab/recorder"
)

// Case is one comparison.
type Case struct {
	// Name of the case and of its backup.
	Name string `json:"name"`
	// Covers are the numbers of BEHAVIOURS.md that the case would show a change of.
	Covers []int `json:"covers,omitempty"`
	// Tags say what kind of case it is, for the list of allowed differences; some are set by themselves.
	Tags []string `json:"tags,omitempty"`
	// World is what is in the cluster. Namespaces that are only mentioned are made, too.
	World []Item `json:"world,omitempty"`
	// Velero is what is in the server's own namespace, such as ConfigMaps with policies; objects are written without namespace.
	Velero []Item `json:"velero,omitempty"`
	// NativeLocations are VolumeSnapshotLocations of the recorder, by name.
	NativeLocations []string `json:"nativeLocations,omitempty"`
	// Args and Env are added to the server's. Cases with the same ones share a server.
	Args []string          `json:"args,omitempty"`
	Env  map[string]string `json:"env,omitempty"`
	// Storage is how the CSI driver behaves; by default it cuts at once.
	Storage []driver.Behaviour `json:"storage,omitempty"`
	// Commands are what commands in containers do; others succeed at once.
	Commands []Command `json:"commands,omitempty"`
	// Plugins is how the recorder behaves.
	Plugins recorder.Behaviour `json:"plugins,omitzero"`
	// NodeAgent is how the stand-in for the node agent behaves; by default everything succeeds.
	NodeAgent NodeAgent `json:"nodeAgent,omitzero"`
	// Labels and Annotations of the Backup, and its spec.
	Labels      map[string]string   `json:"labels,omitempty"`
	Annotations map[string]string   `json:"annotations,omitempty"`
	Spec        velerov1.BackupSpec `json:"spec"`
	// Expect guards against cases that compare nothing.
	Expect Expected `json:"expect,omitzero"`
	// ExpectOurs is what our engine must show, where it is another outcome on purpose. Default: what isn't allowed to differ.
	ExpectOurs *Expected `json:"expectOurs,omitempty"`

	// Unordered says that stock's order isn't defined, since plugins bring in items of kinds that are collected, too.
	Unordered bool `json:"unordered,omitempty"`
	// Random says that Generate made the case.
	Random bool `json:"-"`
	// File the case comes from, for messages.
	File string `json:"-"`
}

// Command is what a command in a container does.
type Command struct {
	// Command is its first word.
	Command string `json:"command"`
	Exit    int    `json:"exit,omitempty"`
	// Takes is how long it runs.
	Takes recorder.Duration `json:"takes,omitzero"`
}

// NodeAgent is the behaviour of the stand-in for the node agent.
type NodeAgent struct {
	// Absent takes the agent's pod and daemon set away.
	Absent bool `json:"absent,omitempty"`
	// Fail is the message with which PodVolumeBackups and DataUploads fail.
	Fail string `json:"fail,omitempty"`
}

// Expected is what an engine must show, so that a case means what it says.
type Expected struct {
	// Phase of the Backup. Default: Completed.
	Phase velerov1.BackupPhase `json:"phase,omitempty"`
	// Has and HasNot are ends of tarball paths, as "configmaps/namespaces/a/x.json".
	Has    []string `json:"has,omitempty"`
	HasNot []string `json:"hasNot,omitempty"`
}

var caseName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

// Load reads all cases of the files that match a pattern; a file holds YAML documents. Unknown keys are refused.
func Load(pattern string) ([]Case, error) {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	var all []Case
	seen := map[string]string{}
	for _, file := range files {
		cases, err := loadFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, c := range cases {
			if other, ok := seen[c.Name]; ok {
				return nil, fmt.Errorf("%s: case %s stands in %s, too", file, c.Name, other)
			}
			seen[c.Name] = file
		}
		all = append(all, cases...)
	}
	return all, nil
}

func loadFile(file string) ([]Case, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var cases []Case
	documents := utilyaml.NewYAMLReader(newBufferedReader(content))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return cases, nil
		}
		if err != nil {
			return nil, err
		}
		c := Case{File: file}
		if err := yaml.UnmarshalStrict(document, &c); err != nil {
			return nil, fmt.Errorf("case %d, %q: %w", len(cases)+1, c.Name, err)
		}
		if isEmpty(document) {
			continue
		}
		if err := c.complete(); err != nil {
			return nil, fmt.Errorf("case %d, %q: %w", len(cases)+1, c.Name, err)
		}
		cases = append(cases, c)
	}
}

// isEmpty says whether a document holds comments only.
func isEmpty(document []byte) bool {
	for line := range bytes.Lines(document) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && !bytes.Equal(line, []byte("---")) {
			return false
		}
	}
	return true
}

// complete fills in defaults and finds mistakes.
func (c *Case) complete() error {
	if !caseName.MatchString(c.Name) {
		return errors.New("a case needs a name of small letters, digits and dashes")
	}
	if c.Expect.Phase == "" {
		c.Expect.Phase = velerov1.BackupPhaseCompleted
	}
	if c.ExpectOurs != nil && c.ExpectOurs.Phase == "" {
		c.ExpectOurs.Phase = velerov1.BackupPhaseCompleted
	}
	slices.Sort(c.Covers)
	if c.Random {
		c.tag(TagRandom)
	}
	if slices.ContainsFunc(c.Commands, func(command Command) bool { return command.Exit != 0 }) {
		c.tag(TagHookFails)
		if c.Random {
			c.tag(TagRandomHookFails)
		}
	}
	if len(c.Spec.Hooks.Resources) > 0 {
		c.tag(TagHooks)
	}
	if len(c.Spec.OrLabelSelectors) > 1 {
		c.tag(TagOrSelectors)
	}
	for i := range c.World {
		if err := c.World[i].parse(); err != nil {
			return err
		}
		if c.World[i].isCSI() {
			c.tag(TagCSI)
		}
		if c.World[i].hasHook() {
			c.tag(TagHooks)
		}
	}
	for i := range c.Velero {
		if err := c.Velero[i].parse(); err != nil {
			return err
		}
	}
	return nil
}

// TagShort marks the cases that continuous integration runs.
const TagShort = "short"

// Tags that cases get by themselves: with volumes of a CSI driver, with hooks, with hooks that fail.
const (
	TagCSI       = "csi"
	TagHooks     = "hooks"
	TagHookFails = "hook-fails"
	// TagRandom is for random cases.
	TagRandom = "random"
	// TagRandomHookFails is for random cases, where a pod's second hook may fail, too.
	TagRandomHookFails = "random-hook-fails"
	// TagOrSelectors is for cases with several label selectors, of which an item may match more than one.
	TagOrSelectors = "or-selectors"
)

func (c *Case) tag(tag string) {
	if !slices.Contains(c.Tags, tag) {
		c.Tags = append(c.Tags, tag)
	}
}
