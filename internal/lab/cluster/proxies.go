// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"

	"github.com/velero-clipper/clipper/internal/lab/apiproxy"
)

// startProxies puts a proxy between the API server and each user that is to have one, and leads the user's kubeconfig to it.
func (c *Cluster) startProxies() error {
	if len(c.opts.Proxied) == 0 {
		return nil
	}
	certificate, err := tls.LoadX509KeyPair(c.pki.servingCert, c.pki.servingKey)
	if err != nil {
		return fmt.Errorf("reading the certificate for the API proxies: %w", err)
	}
	authority := x509.NewCertPool()
	authority.AppendCertsFromPEM(c.pki.caPEM)
	c.proxies = map[User]*apiproxy.Proxy{}
	for _, user := range c.opts.Proxied {
		proxy, err := apiproxy.Start(apiproxy.Options{Target: c.accounts.url, CA: authority, Certificate: certificate})
		if err != nil {
			return err
		}
		c.proxies[user] = proxy
		if err := c.accounts.writeKubeconfig(user, proxy.URL()); err != nil {
			return fmt.Errorf("writing the kubeconfig of %s: %w", user, err)
		}
	}
	return nil
}

// Proxy returns the proxy of a user of Options.Proxied, and nil for others.
func (c *Cluster) Proxy(user User) *apiproxy.Proxy { return c.proxies[user] }
