// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"io"

	"github.com/sirupsen/logrus"
)

// quietly returns a log for code that logs the errors which it returns. Its warnings and errors go into log as debug lines:
// every error line makes the backup PartiallyFailed (57), and one for each cause is enough.
func quietly(log logrus.FieldLogger) logrus.FieldLogger {
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	quiet.SetLevel(logrus.DebugLevel)
	quiet.AddHook(quietHook{log})
	return quiet
}

type quietHook struct{ log logrus.FieldLogger }

// Levels implements logrus.Hook.
func (quietHook) Levels() []logrus.Level { return logrus.AllLevels }

// Fire implements logrus.Hook.
func (h quietHook) Fire(entry *logrus.Entry) error {
	log := h.log.WithFields(entry.Data)
	if entry.Level == logrus.InfoLevel {
		log.Info(entry.Message)
	} else {
		log.Debug(entry.Message)
	}
	return nil
}
