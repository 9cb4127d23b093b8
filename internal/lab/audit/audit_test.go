// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package audit_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/velero-clipper/clipper/internal/lab/audit"
)

// log has: two stages of one watch, a get of a snapshot, a status patch that was throttled, a request for a path, one of
// another user, and a line that is not finished.
const log = `{"auditID":"1","stage":"ResponseStarted","verb":"watch","user":{"username":"velero"},"objectRef":{"resource":"pods"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-01T10:00:00.100000Z"}
{"auditID":"2","stage":"ResponseComplete","verb":"get","user":{"username":"velero"},"objectRef":{"resource":"volumesnapshots","apiGroup":"snapshot.storage.k8s.io","namespace":"app","name":"x"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-01T10:00:01.500000Z"}
{"auditID":"3","stage":"ResponseComplete","verb":"patch","user":{"username":"velero"},"objectRef":{"resource":"backups","apiGroup":"velero.io","subresource":"status"},"responseStatus":{"code":429},"requestReceivedTimestamp":"2026-01-01T10:00:02.000000Z"}

{"auditID":"4","stage":"ResponseComplete","verb":"get","user":{"username":"velero"},"requestURI":"/version","responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-01T10:00:03.000000Z"}
{"auditID":"5","stage":"ResponseComplete","verb":"get","user":{"username":"admin"},"objectRef":{"resource":"pods"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-01T10:00:03.000000Z"}
{"auditID":"1","stage":"ResponseComplete","verb":"watch","user":{"username":"velero"},"objectRef":{"resource":"pods"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-01T10:00:00.100000Z"}
{"auditID":"6","stage":"Respo`

func at(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, "2026-01-01T10:00:"+s+"Z")
	if err != nil {
		panic(err)
	}
	return t
}

func TestCountsWhatWasForbidden(t *testing.T) {
	g := NewWithT(t)
	const refused = `{"auditID":"1","verb":"watch","objectRef":{"resource":"pods"},"responseStatus":{"code":403}}
{"auditID":"1","verb":"watch","objectRef":{"resource":"pods"},"responseStatus":{"code":403}}
{"auditID":"2","verb":"list","objectRef":{"resource":"pods"},"responseStatus":{"code":200}}
`
	counts, err := audit.Count(strings.NewReader(refused), audit.Filter{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(counts.Forbidden).To(Equal(map[string]int{"watch pods": 1}))
	g.Expect(counts.Total).To(Equal(2))
}

func TestCount(t *testing.T) {
	tests := []struct {
		name      string
		filter    audit.Filter
		requests  map[string]int
		throttled int
	}{
		{
			name: "one user", filter: audit.Filter{User: "velero"}, throttled: 1,
			requests: map[string]int{
				"watch pods": 1, "get volumesnapshots.snapshot.storage.k8s.io": 1, "patch backups.velero.io/status": 1, "get nonResource": 1,
			},
		},
		{
			name: "a range of time takes its start and leaves its end", filter: audit.Filter{User: "velero", From: at("01.5"), To: at("02")},
			requests: map[string]int{"get volumesnapshots.snapshot.storage.k8s.io": 1},
		},
		{
			name: "anyone", filter: audit.Filter{From: at("03")},
			requests: map[string]int{"get nonResource": 1, "get pods": 1},
		},
		{name: "nobody", filter: audit.Filter{User: "other"}, requests: map[string]int{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			counts, err := audit.Count(strings.NewReader(log), test.filter)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(counts.Requests).To(Equal(test.requests))
			g.Expect(counts.Throttled).To(Equal(test.throttled))
			total := 0
			for _, n := range counts.ByVerb {
				total += n
			}
			g.Expect(counts.Total).To(Equal(total))
		})
	}
}

func TestCountSums(t *testing.T) {
	g := NewWithT(t)
	counts, err := audit.Count(strings.NewReader(log), audit.Filter{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(counts.Total).To(Equal(5))
	g.Expect(counts.ByVerb).To(Equal(map[string]int{"watch": 1, "get": 3, "patch": 1}))
	g.Expect(counts.ByResource).To(HaveKeyWithValue("pods", 2))
	g.Expect(counts.ByResource).To(HaveKeyWithValue(audit.NonResource, 1))
}

func TestCountNamesABrokenLine(t *testing.T) {
	_, err := audit.Count(strings.NewReader("\n{}\nnonsense\n"), audit.Filter{})
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("line 3")))
}

func TestCountFile(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "audit.log")
	counts, err := audit.CountFile(path, audit.Filter{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(counts.Total).To(BeZero())

	g.Expect(os.WriteFile(path, []byte(log), 0o600)).To(Succeed())
	counts, err = audit.CountFile(path, audit.Filter{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(counts.Total).To(Equal(5))
}
