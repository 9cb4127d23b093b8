// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestAPanicOfTheFinalizerIsFound(t *testing.T) {
	const (
		told  = `level=error msg="Observed a panic" controller=backup-finalizer name=seed-30 namespace=velero-stock panic="nil pointer"` + "\n"
		other = `level=error msg="Observed a panic" controller=backup name=seed-30 namespace=velero-stock panic="nil pointer"` + "\n"
		usual = `level=info msg="Finalizing" controller=backup-finalizer name=seed-30 namespace=velero-stock` + "\n"
	)
	for name, test := range map[string]struct {
		log    string
		backup string
		want   bool
	}{
		"told":                        {usual + told, "seed-30", true},
		"another backup":              {usual + told, "seed-3", false},
		"another controller":          {usual + other, "seed-30", false},
		"a finalizer without a panic": {usual, "seed-30", false},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(panicked([]byte(test.log), test.backup)).To(Equal(test.want))
		})
	}
}
