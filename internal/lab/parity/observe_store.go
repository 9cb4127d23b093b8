// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/vmware-tanzu/velero/pkg/util/results"
)

// readStore reads everything that the backup uploaded.
func (o observed) readStore(_ context.Context, out *Observation) error {
	folder := path.Join(o.engine.name, "backups", o.c.Name) + "/"
	keys, err := o.lab.store.Keys(folder)
	if err != nil {
		return err
	}
	files := map[string]any{}
	for _, key := range keys {
		content, err := o.lab.store.Get(key)
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(strings.TrimPrefix(key, folder), o.c.Name)
		if files[name], err = o.readFile(name, content, out); err != nil {
			return fmt.Errorf("reading %s: %w", key, err)
		}
	}
	out.Sections["files"] = files
	return nil
}

// readFile parses one uploaded file. What differs between any two backups, or is for people, is left out.
func (o observed) readFile(name string, content []byte, out *Observation) (any, error) {
	if !strings.HasSuffix(name, ".gz") {
		return parsed(content)
	}
	reader, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	if content, err = io.ReadAll(reader); err != nil {
		return nil, err
	}
	switch name {
	case ".tar.gz":
		return "see tarball", o.readTarball(content, out)
	case "-logs.gz":
		return logCounts(content), nil
	case "-results.gz":
		return readResults(content, out)
	case "-resource-list.json.gz":
		return readResourceList(content)
	case "-itemoperations.json.gz":
		return unordered(content)
	case "-volumeinfo.json.gz":
		return readVolumeInfo(content, out)
	case "-podvolumebackups.json.gz", "-volumesnapshots.json.gz":
		return unordered(content)
	}
	return parsed(content)
}

// unordered is a list without its order: stock's is that of its walk, which has no defined order of kinds, or that of a list
// from a cache.
func unordered(content []byte) (any, error) {
	tree, err := parsed(content)
	list, ok := tree.([]any)
	if err != nil || !ok {
		return tree, err
	}
	return Unordered(list), nil
}

// readVolumeInfo reads what became of each volume. Why one was skipped is each engine's own words, and kept as a note; for which ways of
// protection it was skipped is compared.
func readVolumeInfo(content []byte, out *Observation) (any, error) {
	tree, err := unordered(content)
	list, ok := tree.(Unordered)
	if err != nil || !ok {
		return tree, err
	}
	for _, one := range list {
		reason, ok := asMap(one)["skippedReason"].(string)
		if !ok {
			continue
		}
		out.Notes = append(out.Notes, fmt.Sprintf("volume %v skipped: %s", asMap(one)["pvName"], reason))
		var approaches []string
		for _, part := range strings.Split(reason, ";") {
			approach, _, _ := strings.Cut(part, ":")
			approaches = append(approaches, approach)
		}
		asMap(one)["skippedReason"] = strings.Join(approaches, ";")
	}
	return list, nil
}

// parsed is the tree of a JSON file.
func parsed(content []byte) (any, error) {
	var tree any
	err := json.Unmarshal(content, &tree)
	withoutTexts(tree)
	return tree, err
}

// readTarball reads the entries and their order, without the servers' own objects.
func (o observed) readTarball(content []byte, out *Observation) error {
	entries := map[string]any{}
	order := ordered{}
	archive := tar.NewReader(bytes.NewReader(content))
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if isServerPath(header.Name) {
			continue
		}
		body, err := io.ReadAll(archive)
		if err != nil {
			return err
		}
		order.addPath(resourceOf(header.Name), header.Name)
		var tree any = string(body)
		if strings.HasSuffix(header.Name, ".json") {
			if err := json.Unmarshal(body, &tree); err != nil {
				return fmt.Errorf("%s: %w", header.Name, err)
			}
		}
		entries[header.Name] = map[string]any{"mode": fmt.Sprintf("%o", header.Mode), "type": string(header.Typeflag), "body": tree}
	}
	out.Sections["tarball"] = map[string]any{"entries": entries, "order": order.tree()}
	return nil
}

// resourceOf is the resource of a path like resources/pods/namespaces/a/x.json.
func resourceOf(name string) string {
	parts := strings.Split(name, "/")
	if len(parts) < 2 || parts[0] != "resources" {
		return parts[0]
	}
	return parts[1]
}

// isServerPath says whether a path in a tarball is of an object in a server's namespace.
func isServerPath(name string) bool {
	for _, part := range strings.Split(name, "/") {
		if isServerNamespace(strings.TrimSuffix(part, ".json")) {
			return true
		}
	}
	return false
}

// logCounts counts the lines that count for the outcome.
func logCounts(content []byte) any {
	counts := map[string]any{"error": 0.0, "warning": 0.0}
	for line := range strings.Lines(string(content)) {
		for level := range counts {
			if strings.Contains(line, "level="+level) || strings.Contains(line, `"level":"`+level+`"`) {
				counts[level] = counts[level].(float64) + 1
			}
		}
	}
	return counts
}

// readResults counts the messages of each group; their texts are each engine's own, and are kept as notes.
func readResults(content []byte, out *Observation) (any, error) {
	var found map[string]results.Result
	if err := json.Unmarshal(content, &found); err != nil {
		return nil, err
	}
	tree := map[string]any{}
	for kind, result := range found {
		counts := map[string]any{}
		count := func(group string, messages []string) {
			counts[group] = float64(len(messages))
			for _, message := range messages {
				out.Notes = append(out.Notes, kind+" "+group+": "+message)
			}
		}
		count("velero", result.Velero)
		count("cluster", result.Cluster)
		for namespace, messages := range result.Namespaces {
			count("namespace "+namespace, messages)
		}
		tree[kind] = counts
	}
	return tree, nil
}

// readResourceList reads which items the backup says to hold, without the servers' own.
func readResourceList(content []byte) (any, error) {
	var lists map[string][]string
	if err := json.Unmarshal(content, &lists); err != nil {
		return nil, err
	}
	tree := map[string]any{}
	for kind, items := range lists {
		var kept Unordered
		for _, item := range items {
			if namespace, _, _ := strings.Cut(item, "/"); !isServerNamespace(namespace) {
				kept = append(kept, item)
			}
		}
		if len(kept) > 0 {
			tree[kind] = kept
		}
	}
	return tree, nil
}
