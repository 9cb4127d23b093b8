// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Defaults of Options.
const (
	DefaultNamespace    = "velero"
	DefaultLocation     = "default"
	DefaultStartTimeout = time.Minute
)

// Store is the object store that the server writes to.
type Store struct {
	// URL such as "http://127.0.0.1:9000", and the bucket.
	URL, Bucket string
	// Prefix inside the bucket. Default: none.
	Prefix string
}

// Options of a server.
type Options struct {
	// Binary is the absolute path of the velero binary.
	Binary string
	// Args are appended to "server", the addresses, the plugin folder and "--features=EnableCSI".
	Args []string
	// Env holds KEY=value pairs that are added to, and win over, the environment that the server gets. Of
	// the lab's own environment it gets only PATH.
	Env []string
	// Kubeconfig of the user that the server logs in as.
	Kubeconfig string
	// Client creates and watches the storage location, with the lab's rights, so that nothing of it
	// is counted as the server's.
	Client client.WithWatch
	// Dir gets logs, HOME and TMPDIR.
	Dir string
	// PluginDir holds velero-plugin-for-aws and nothing else that is executable.
	PluginDir string
	// Store is where the location points.
	Store Store
	// Namespace. Default: DefaultNamespace.
	Namespace string
	// Location is the storage location's name. Default: DefaultLocation.
	Location string
	// MetricsAddress, host:port. Default: a free loopback port.
	MetricsAddress string
	// StartTimeout bounds Start. Default: DefaultStartTimeout.
	StartTimeout time.Duration
}

func (o Options) withDefaults() (Options, error) {
	setDefault(&o.Namespace, DefaultNamespace)
	setDefault(&o.Location, DefaultLocation)
	setDefault(&o.StartTimeout, DefaultStartTimeout)
	var errs []error
	for _, field := range []struct{ name, value string }{
		{"Binary", o.Binary},
		{"Kubeconfig", o.Kubeconfig},
		{"Dir", o.Dir},
		{"PluginDir", o.PluginDir},
		{"Store.URL", o.Store.URL},
		{"Store.Bucket", o.Store.Bucket},
	} {
		if field.value == "" {
			errs = append(errs, errors.New(field.name+" is missing"))
		}
	}
	if o.Client == nil {
		errs = append(errs, errors.New("the Client is missing"))
	}
	return o, errors.Join(errs...)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
