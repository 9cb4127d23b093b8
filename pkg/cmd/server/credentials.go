// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/vmware-tanzu/velero/pkg/util/kube"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// credentialFiles hands out credentials as files, for plugins that read them from there. It is safe for concurrent use.
type credentialFiles struct {
	client    client.Client
	namespace string
	dir       string
}

// newCredentialFiles keeps its files in a folder of its own below root: Velero's half keeps others there.
func newCredentialFiles(c client.Client, namespace, root string) (*credentialFiles, error) {
	dir := filepath.Join(root, "backup-controllers", namespace)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the credentials folder: %w", err)
	}
	return &credentialFiles{client: c, namespace: namespace, dir: dir}, nil
}

// Path writes one key of a Secret to a file and returns its path. The file is replaced as a whole, so that a plugin that is
// reading it meanwhile sees the old or the new content.
func (f *credentialFiles) Path(selector *corev1.SecretKeySelector) (string, error) {
	content, err := kube.GetSecretKey(f.client, f.namespace, selector)
	if err != nil {
		return "", fmt.Errorf("reading key %s of Secret %s/%s: %w", selector.Key, f.namespace, selector.Name, err)
	}
	// The name of a Secret has no underscore in it, so that no other Secret and key have the same path.
	path := filepath.Join(f.dir, selector.Name+"_"+selector.Key)
	if err := replaceFile(path, content); err != nil {
		return "", fmt.Errorf("writing the credentials of Secret %s/%s: %w", f.namespace, selector.Name, err)
	}
	return path, nil
}

func replaceFile(path string, content []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

// credentialSecrets hands out credentials as text. It is safe for concurrent use.
type credentialSecrets struct {
	client    client.Client
	namespace string
}

// Get returns one key of a Secret.
func (s credentialSecrets) Get(selector *corev1.SecretKeySelector) (string, error) {
	content, err := kube.GetSecretKey(s.client, s.namespace, selector)
	if err != nil {
		return "", fmt.Errorf("reading key %s of Secret %s/%s: %w", selector.Key, s.namespace, selector.Name, err)
	}
	return string(content), nil
}
