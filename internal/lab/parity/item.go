// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// Item is one object of a case, or several. In YAML it is a text "Kind namespace/name label=value ...", or a map whose
// key object is that text. A cluster-scoped object has no namespace before its name.
type Item struct {
	Object string `json:"object"`
	// Count makes so many; {i} in Object and Claims is the number, from 0.
	Count       int               `json:"count,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// Claims are the names of the claims that a Pod mounts.
	Claims []string `json:"claims,omitempty"`
	// Containers of a Pod. Default: app.
	Containers []string `json:"containers,omitempty"`
	// Phase of a Pod, a PersistentVolumeClaim or a Namespace. Default: Running, Bound, Active.
	Phase string `json:"phase,omitempty"`
	// Volume is the source of the PV behind a claim: "csi" (the default), "hostPath" or "nfs"; "none" leaves the claim unbound.
	Volume string `json:"volume,omitempty"`
	// Driver of a CSI volume. Default: the lab's.
	Driver string `json:"driver,omitempty"`
	// Data of a ConfigMap; a value that is no text is written as YAML.
	Data map[string]any `json:"data,omitempty"`
	// Patch is merged into the object, PVPatch into the PV behind a claim.
	Patch   map[string]any `json:"patch,omitempty"`
	PVPatch map[string]any `json:"pvPatch,omitempty"`
	// Deleting gives the object a finalizer and deletes it, so that it has a deletion timestamp.
	Deleting bool `json:"deleting,omitempty"`

	kind, namespace, name string
	labels                map[string]string
}

// UnmarshalJSON reads both forms.
func (i *Item) UnmarshalJSON(content []byte) error {
	if bytes.HasPrefix(bytes.TrimSpace(content), []byte(`"`)) {
		return json.Unmarshal(content, &i.Object)
	}
	type plain Item
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	return decoder.Decode((*plain)(i))
}

// parse takes the text apart.
func (i *Item) parse() error {
	words := strings.Fields(i.Object)
	if len(words) < 2 {
		return fmt.Errorf("object %q is not like \"ConfigMap a/x app=web\"", i.Object)
	}
	i.kind, i.name = words[0], words[1]
	if _, ok := kinds[i.kind]; !ok {
		return fmt.Errorf("object %q: kind %s isn't known to the parity suite; add it to kinds.go", i.Object, i.kind)
	}
	if namespace, name, ok := strings.Cut(i.name, "/"); ok {
		i.namespace, i.name = namespace, name
	}
	i.labels = map[string]string{}
	for _, word := range words[2:] {
		key, value, ok := strings.Cut(word, "=")
		if !ok {
			return fmt.Errorf("object %q: label %q has no =", i.Object, word)
		}
		i.labels[key] = value
	}
	return nil
}

// expand gives the single objects.
func (i Item) expand() []Item {
	if i.Count == 0 {
		return []Item{i}
	}
	all := make([]Item, 0, i.Count)
	for n := range i.Count {
		one := i
		number := strconv.Itoa(n)
		one.name = strings.ReplaceAll(i.name, "{i}", number)
		one.namespace = strings.ReplaceAll(i.namespace, "{i}", number)
		one.Claims = nil
		for _, claim := range i.Claims {
			one.Claims = append(one.Claims, strings.ReplaceAll(claim, "{i}", number))
		}
		all = append(all, one)
	}
	return all
}

func (i Item) isCSI() bool {
	return i.kind == "PersistentVolumeClaim" && (i.Volume == "" || i.Volume == volumeCSI)
}

func (i Item) hasHook() bool {
	for key := range i.Annotations {
		if strings.Contains(key, "hook.backup.velero.io/") {
			return true
		}
	}
	return false
}

// data is the content of a ConfigMap.
func (i Item) data() (map[string]any, error) {
	out := map[string]any{}
	for key, value := range i.Data {
		if text, ok := value.(string); ok {
			out[key] = text
			continue
		}
		text, err := yaml.Marshal(value)
		if err != nil {
			return nil, err
		}
		out[key] = string(text)
	}
	return out, nil
}

func newBufferedReader(content []byte) *bufio.Reader {
	return bufio.NewReader(bytes.NewReader(content))
}
