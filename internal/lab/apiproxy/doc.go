// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiproxy stands between one client and the lab's API server, and makes the API misbehave on request: it answers
// with an error in the API server's place, delays requests, cuts watches, and lets them expire.
//
// It promises that it listens on loopback only, that a client's credentials reach the API server unchanged, so that the
// audit log says who asked, and that without a fault it is a wire: streams are passed on byte by byte, and an API server that is
// away looks like a broken connection, not like an answer. A request that it answers itself never reaches the API server,
// so the audit log doesn't have it; Counts does.
//
// Towards the client it speaks HTTP/2 and HTTP/1.1, as the API server does; behind it HTTP/1.1, which can be upgraded for exec.
//
// proxy.go is the proxy, fault.go says which requests a fault is for, request.go reads verb and resource from a request,
// watches.go keeps the open watches.
package apiproxy
