// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"net/http"
	"strings"
)

// request is what a fault looks at.
type request struct {
	// verb is get, list, watch, create, update, patch, delete or deletecollection; empty for a path that is no resource's.
	verb string
	// resource is the plural name, with "/status" and the like behind it for a subresource.
	resource string
}

// read finds out what a request is about by its method, path and query, as the API conventions say.
func read(r *http.Request) request {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return request{}
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	out := request{resource: parts[0]}
	if len(parts) > 2 {
		out.resource += "/" + strings.Join(parts[2:], "/")
	}
	out.verb = verb(r, len(parts) > 1)
	return out
}

func verb(r *http.Request, named bool) string {
	watches := r.URL.Query().Get("watch")
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		switch {
		case watches == "true" || watches == "1":
			return "watch"
		case named:
			return "get"
		}
		return "list"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if named {
			return "delete"
		}
		return "deletecollection"
	}
	return ""
}
