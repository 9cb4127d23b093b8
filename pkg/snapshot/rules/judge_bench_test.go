// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// twoHundred are 200 user rules of the shapes that platforms write, none of which matches the errors of the benchmarks:
// the worst case, in which all are asked.
func twoHundred(tb testing.TB) *Set {
	shapes := []string{
		`driver == "block-%d.csi.example.com" && words.contains("pool is full")`,
		`driver == "block-%d.csi.example.com" && code == "Internal" && message.contains("E%[1]d")`,
		`code == "ResourceExhausted" && words.contains("quota %d")`,
		`words.contains("error number %d") && age > duration("30s")`,
		`pvcNamespace.startsWith("team-%d-") && attempts > 3`,
	}
	return setOf(tb, shapes)
}

func setOf(tb testing.TB, shapes []string) *Set {
	var text strings.Builder
	for i := range 200 {
		fmt.Fprintf(&text, "- name: rule-%d\n  when: '%s'\n  verdict: terminal\n  reason: a reason\n", i, fmt.Sprintf(shapes[i%len(shapes)], i))
	}
	set, err := Parse("benchmark", text.String())
	if err != nil {
		tb.Fatal(err)
	}
	return set
}

func observation(driver, text string) snapshot.Observation {
	return snapshot.Observation{
		Driver: driver, Code: "Internal", Attempts: 2, Age: 10 * time.Second, Phase: snapshot.PhaseCutting,
		StorageClass: "fast", Namespace: "app", PVC: "data-0",
		Message: fmt.Sprintf("Failed to check and update snapshot content: failed to take snapshot of the volume vol-0a1b2c3d4e5f: %q",
			"rpc error: code = Internal desc = "+text),
	}
}

const ordinary = `could not create snapshot "snapshot-7f8a": operation error EC2: CreateSnapshot, https response error StatusCode: 400, ` +
	`RequestID: 0a1b2c3d-1111-2222-3333-444455556666, api error InternalError: An internal error has occurred`

func benchmark(b *testing.B, set *Set, o snapshot.Observation) {
	b.ReportAllocs()
	for b.Loop() {
		set.Judge(o)
	}
}

func BenchmarkJudgeBuiltIn(b *testing.B) {
	benchmark(b, BuiltIn(), observation("ebs.csi.aws.com", ordinary))
}

func BenchmarkJudge200Rules(b *testing.B) {
	benchmark(b, twoHundred(b), observation("ebs.csi.aws.com", ordinary))
}

// BenchmarkJudge200Expressions has a regular expression over the whole text in every rule, which is the dearest way to write one.
func BenchmarkJudge200Expressions(b *testing.B) {
	benchmark(b, setOf(b, []string{`words.matches("(?i)quota %d (reached|exceeded)")`}), observation("ebs.csi.aws.com", ordinary))
}

// BenchmarkJudge200Evaluated has rules that no shortcut spares: CEL has to evaluate all of them.
func BenchmarkJudge200Evaluated(b *testing.B) {
	benchmark(b, setOf(b, []string{`driver == "ebs.csi.aws.com" && driver.size() == 10000 + %d`}), observation("ebs.csi.aws.com", ordinary))
}

func BenchmarkJudge200RulesLong(b *testing.B) {
	benchmark(b, twoHundred(b), observation("ebs.csi.aws.com", strings.Repeat(ordinary+"\n", 64<<10/len(ordinary))))
}
