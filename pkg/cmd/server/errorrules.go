// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"strings"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/features"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/velero-clipper/clipper/pkg/snapshot"
	"github.com/velero-clipper/clipper/pkg/snapshot/rules"
)

// ErrorRulesFlag names the ConfigMap with the platform's snapshot error rules.
const ErrorRulesFlag = "csi-snapshot-error-rules"

// configMapName is the value of a flag that names a ConfigMap in the server's namespace.
type configMapName string

// String implements pflag.Value.
func (n *configMapName) String() string { return string(*n) }

// Type implements pflag.Value.
func (*configMapName) Type() string { return "string" }

// Set implements pflag.Value.
func (n *configMapName) Set(text string) error {
	if problems := validation.IsDNS1123Subdomain(text); len(problems) > 0 {
		return fmt.Errorf("%q can't be the name of a ConfigMap in the server's namespace: %s", text, strings.Join(problems, "; "))
	}
	*n = configMapName(text)
	return nil
}

// errorRules returns the judge of snapshot errors, which follows the ConfigMap for as long as the manager runs. The server
// starts whatever is wrong with the ConfigMap.
func (s *second) errorRules(log logrus.FieldLogger) (snapshot.Judge, error) {
	if !features.IsEnabled(velerov1.CSIFeatureFlag) {
		return rules.BuiltIn(), nil // no CSI snapshot is asked for
	}
	live := rules.NewLive(rules.LiveOptions{
		Client: s.kube, Namespace: s.factory.Namespace(), Name: s.settings.errorRules.String(),
		Recorder: s.mgr.GetEventRecorderFor("velero-server"), Logger: log,
	})
	if err := s.mgr.Add(live); err != nil {
		return nil, fmt.Errorf("following the snapshot error rules: %w", err)
	}
	return live, nil
}
