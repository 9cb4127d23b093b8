// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/client-go/rest"

	"github.com/velero-clipper/clipper/internal/lab/process"
	"github.com/velero-clipper/clipper/internal/lab/toolchain"
)

// readyEvery is how often a starting API server is asked: there is nothing that could be
// watched before it serves.
const readyEvery = 50 * time.Millisecond

// startLimit bounds the start of one component, so that a hang is reported.
const startLimit = 2 * time.Minute

// auditPolicy records what the server under test asks for, once per request.
var auditPolicy = fmt.Sprintf(`apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: [%q]
- level: None
`, UserVelero)

// ports are the loopback ports of a cluster.
type ports struct {
	etcdClient, etcdPeer, api int
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// etcdSpec gives up durability: the data is thrown away with the cluster.
func (c *Cluster) etcdSpec() process.Spec {
	client, peer := "http://"+loopback(c.ports.etcdClient), "http://"+loopback(c.ports.etcdPeer)
	return process.Spec{
		Path: c.opts.Programs[toolchain.Etcd],
		Args: []string{
			"--name=lab",
			"--data-dir=" + filepath.Join(c.opts.Dir, "etcd"),
			"--unsafe-no-fsync",
			"--listen-client-urls=" + client,
			"--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer,
			"--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=lab=" + peer,
			"--quota-backend-bytes=" + strconv.Itoa(4<<30),
		},
		LogPath:   c.logPath("etcd"),
		ReadyLine: "ready to serve client requests",
	}
}

func (c *Cluster) apiServerSpec() process.Spec {
	args := []string{
		"--etcd-servers=http://" + loopback(c.ports.etcdClient),
		"--bind-address=127.0.0.1",
		// Else it looks for the default route, which a network namespace with loopback alone doesn't have.
		"--advertise-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(c.ports.api),
		"--tls-cert-file=" + c.pki.servingCert,
		"--tls-private-key-file=" + c.pki.servingKey,
		"--token-auth-file=" + c.accounts.tokenFile(),
		"--authorization-mode=" + string(c.opts.Authorization),
		"--service-cluster-ip-range=10.0.0.0/24",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.pki.serviceAccountKey,
		"--service-account-signing-key-file=" + c.pki.serviceAccountKey,
		// These three need controllers that the lab doesn't run.
		"--disable-admission-plugins=ServiceAccount,DefaultStorageClass,PodSecurity",
		"--endpoint-reconciler-type=none",
		"--kubelet-preferred-address-types=InternalIP",
		"--allow-privileged=true",
		"--audit-policy-file=" + c.auditPolicyPath(),
		"--audit-log-path=" + c.AuditLog(),
		"--audit-log-maxsize=100000", // megabytes: never rotated, so that counts are whole
	}
	return process.Spec{
		Path:    c.opts.Programs[toolchain.KubeAPIServer],
		Args:    append(args, c.opts.APIServerArgs...),
		LogPath: c.logPath("kube-apiserver"),
	}
}

func (c *Cluster) auditPolicyPath() string { return filepath.Join(c.opts.Dir, "audit-policy.yaml") }

func (c *Cluster) writeAuditPolicy() error {
	return os.WriteFile(c.auditPolicyPath(), []byte(auditPolicy), 0o644)
}

// waitAPIServer returns when /readyz answers ok.
func (c *Cluster) waitAPIServer(ctx context.Context, server *process.Process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready within %s", startLimit))
	defer cancel()
	config, err := c.RESTConfig(UserAdmin)
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	again := time.NewTicker(readyEvery)
	defer again.Stop()
	for !apiReady(ctx, client, config.Host) {
		select {
		case <-again.C:
		case <-server.Done():
			return server.EndedError()
		case <-ctx.Done():
			return fmt.Errorf("waiting for kube-apiserver: %w; the end of its log:\n%s", context.Cause(ctx), server.LogTail(20))
		}
	}
	return nil
}

func apiReady(ctx context.Context, client *http.Client, host string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, host+"/readyz", nil)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	return errors.Join(err, response.Body.Close()) == nil && response.StatusCode == http.StatusOK
}
