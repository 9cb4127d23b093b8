// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package podexec

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"time"

	spdystream "k8s.io/apimachinery/pkg/util/httpstream/spdy"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport/spdy"
)

// pingPeriod keeps load balancers from closing a connection on which a long command says nothing.
const pingPeriod = 5 * time.Second

// transport makes the connections of attempts.
type transport struct {
	config *rest.Config
	tls    *tls.Config
	proxy  func(*http.Request) (*url.URL, error)
}

func newTransport(config *rest.Config) (*transport, error) {
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	if tlsConfig == nil {
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	proxy := config.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	return &transport{config: config, tls: tlsConfig, proxy: proxy}, nil
}

// spdy returns what one SPDY connection is made with. client-go's own would wait for an answer to its request without end,
// whatever the request's context says, and for the end of streams that nobody ends. So it is given connections that end with the
// context, and that the caller closes by close when the attempt is over. Through a proxy it makes its own.
func (t *transport) spdy(d *dialer) (http.RoundTripper, spdy.Upgrader, error) {
	config := spdystream.RoundTripperConfig{PingPeriod: pingPeriod}
	if t.isProxied() {
		config.TLS, config.Proxier = t.tls, t.proxy
	} else {
		config.UpgradeTransport = &http.Transport{TLSClientConfig: t.tls, DialContext: d.dial}
	}
	upgrader, err := spdystream.NewRoundTripperWithConfig(config)
	if err != nil {
		return nil, nil, err
	}
	wrapped, err := rest.HTTPWrappersForConfig(t.config, upgrader)
	if err != nil {
		return nil, nil, err
	}
	return wrapped, upgrader, nil
}

func (t *transport) isProxied() bool {
	target, _, err := rest.DefaultServerUrlFor(t.config)
	if err != nil {
		return false
	}
	through, err := t.proxy(&http.Request{URL: target})
	return err != nil || through != nil
}

// dialer makes the connection of one attempt.
type dialer struct {
	// with makes a plain connection. Default: net.Dialer does.
	with func(ctx context.Context, network, address string) (net.Conn, error)
	made net.Conn
}

// dial makes a connection on which nothing blocks any more when ctx has ended.
func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	with := d.with
	if with == nil {
		with = new(net.Dialer).DialContext
	}
	connection, err := with(ctx, network, address)
	if err != nil {
		return nil, err
	}
	past := time.Unix(1, 0)
	stop := context.AfterFunc(ctx, func() { _ = connection.SetDeadline(past) }) // it fails only for one that is closed
	d.made = &boundConnection{Conn: connection, stop: stop}
	return d.made, nil
}

// close ends what was made.
func (d *dialer) close() {
	if d.made != nil {
		_ = d.made.Close() // it is closed already where all went well
	}
}

// boundConnection is bound to a context.
type boundConnection struct {
	net.Conn
	stop func() bool
}

// Close implements net.Conn.
func (c *boundConnection) Close() error {
	c.stop()
	return c.Conn.Close()
}

// webSocket returns a configuration for one WebSocket connection, which tells the progress when it is there. The command is
// started then, without another word.
func (t *transport) webSocket(p *progress) *rest.Config {
	config := rest.CopyConfig(t.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(request)
			if err == nil {
				p.change(func(p *progress) { p.asked, p.resultUnseen = streamsOfACommand, true })
			}
			return response, err
		})
	})
	return config
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }
