// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// User is a name that can log in, each with a token of its own.
type User string

// The users of every cluster. UserSidecar gives that of a driver's sidecar.
const (
	// UserAdmin is the person who looks around, and the lab itself.
	UserAdmin User = "admin"
	// UserVelero is the server under test. It is named like the service account of a real
	// installation, so that real role bindings apply to it, and is the only audited user.
	UserVelero User = "system:serviceaccount:velero:velero"
	// UserKubelet is the kubelet stand-in.
	UserKubelet User = "kubelet"
	// UserSnapshotController is the snapshot-controller.
	UserSnapshotController User = "snapshot-controller"
)

// UserSidecar is the user of a driver's csi-snapshotter.
func UserSidecar(driver string) User { return User("csi-snapshotter-" + driver) }

// groups lets everyone but Velero do everything in RBAC mode.
func (u User) groups() []string {
	if u == UserVelero {
		return []string{"system:serviceaccounts", "system:serviceaccounts:velero"}
	}
	return []string{"system:masters"}
}

// fileName is the user's name without what doesn't belong in a file's.
func (u User) fileName() string {
	return strings.ReplaceAll(string(u), ":", "-") + ".kubeconfig"
}

// accounts are the users of one cluster and their tokens.
type accounts struct {
	dir    string
	url    string
	caPEM  []byte
	tokens map[User]string
}

// newAccounts makes tokens and writes the token file and a kubeconfig for each user.
func newAccounts(dir, url string, caPEM []byte, users []User) (*accounts, error) {
	a := &accounts{dir: dir, url: url, caPEM: caPEM, tokens: map[User]string{}}
	var lines strings.Builder
	for _, user := range users {
		raw := make([]byte, 16)
		_, _ = rand.Read(raw) // never fails, as documented
		a.tokens[user] = hex.EncodeToString(raw)
		fmt.Fprintf(&lines, "%s,%s,%s,%q\n", a.tokens[user], user, user, strings.Join(user.groups(), ","))
	}
	if err := os.WriteFile(a.tokenFile(), []byte(lines.String()), 0o600); err != nil {
		return nil, fmt.Errorf("writing the token file: %w", err)
	}
	for _, user := range users {
		if err := a.writeKubeconfig(user, url); err != nil {
			return nil, fmt.Errorf("writing the kubeconfig of %s: %w", user, err)
		}
	}
	return a, nil
}

func (a *accounts) tokenFile() string { return filepath.Join(a.dir, "tokens.csv") }

func (a *accounts) kubeconfig(user User) string { return filepath.Join(a.dir, user.fileName()) }

// writeKubeconfig writes the user's way in; url is the API server or a proxy before it.
func (a *accounts) writeKubeconfig(user User, url string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["lab"] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: a.caPEM}
	config.AuthInfos[string(user)] = &clientcmdapi.AuthInfo{Token: a.tokens[user]}
	config.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: string(user)}
	config.CurrentContext = "lab"
	return clientcmd.WriteToFile(*config, a.kubeconfig(user))
}

// restConfig is without client-side limits: the lab measures servers, not itself.
func (a *accounts) restConfig(user User) (*rest.Config, error) {
	token, ok := a.tokens[user]
	if !ok {
		return nil, errors.New("the cluster has no user " + string(user))
	}
	return &rest.Config{
		Host: a.url, BearerToken: token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: a.caPEM},
	}, nil
}
