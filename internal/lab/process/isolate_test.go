// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
)

// miniLab is a copy of the test program in a role of runRole.
type miniLab struct {
	*exec.Cmd
	stdout *bufio.Reader
	stderr bytes.Buffer
}

func startLab(t *testing.T, role, script string) *miniLab {
	t.Helper()
	g := NewWithT(t)
	lab := &miniLab{Cmd: exec.Command(os.Args[0], script)}
	lab.Env = append(os.Environ(), roleEnv+"="+role)
	stdout, err := lab.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	lab.stdout, lab.Cmd.Stderr = bufio.NewReader(stdout), &lab.stderr
	g.Expect(lab.Start()).To(Succeed())
	t.Cleanup(func() { _ = lab.Process.Kill() })
	return lab
}

// requireIsolation reads the level and skips the test where the machine doesn't permit it.
func (l *miniLab) requireIsolation(t *testing.T, want Level) {
	t.Helper()
	line, err := l.stdout.ReadString('\n')
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	level := Level(strings.TrimSpace(strings.TrimPrefix(line, "level ")))
	if level == LevelNone {
		_ = l.Process.Kill()
		_ = l.Wait()
		t.Skipf("namespaces are not permitted here: %s", l.stderr.String())
	}
	NewWithT(t).Expect(level).To(Equal(want))
}

// In every test the grandchild leaves its process group, so that only the kernel can find it.
const holdWitness = "exec 9>$W; setsid sleep 600 & sleep 600"

func TestKilledLabLeavesNothing(t *testing.T) {
	for role, level := range map[string]Level{"pid": LevelPID, "network": LevelNetwork} {
		t.Run(role, func(t *testing.T) {
			g := NewWithT(t)
			w := newWitness(t)
			lab := startLab(t, role, strings.ReplaceAll(holdWitness, "$W", w.path))
			lab.requireIsolation(t, level)
			alive := w.open(t)
			g.Expect(lab.Process.Signal(syscall.SIGKILL)).To(Succeed())
			_ = lab.Wait()
			_, err := io.ReadAll(alive) // returns when child and grandchild are gone
			g.Expect(err).NotTo(HaveOccurred())
		})
	}
}

func TestKilledLabWithoutNamespacesLeavesNoChild(t *testing.T) {
	g := NewWithT(t)
	w := newWitness(t)
	lab := startLab(t, "plain", "exec 9>"+w.path+"; exec sleep 600")
	alive := w.open(t)
	g.Expect(lab.Process.Signal(syscall.SIGKILL)).To(Succeed())
	_ = lab.Wait()
	_, err := io.ReadAll(alive)
	g.Expect(err).NotTo(HaveOccurred())
}

func TestEndedLabLeavesNothing(t *testing.T) {
	g := NewWithT(t)
	w := newWitness(t)
	// The child ends as soon as it is told so, and with it the lab; the grandchild would stay.
	lab := startLab(t, "pid", "exec 9>"+w.path+"; setsid sleep 600 & exit 5")
	lab.requireIsolation(t, LevelPID)
	alive := w.open(t)
	_, err := io.ReadAll(alive)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(lab.Wait()).NotTo(Succeed())
	g.Expect(lab.ProcessState.ExitCode()).To(Equal(5), "the exit code is passed on")
}

func TestSignalsReachTheLabOnce(t *testing.T) {
	g := NewWithT(t)
	w := newWitness(t)
	lab := startLab(t, "network", "exec 9>"+w.path+"; exec sleep 600")
	lab.requireIsolation(t, LevelNetwork)
	w.open(t)
	g.Expect(lab.Process.Signal(syscall.SIGTERM)).To(Succeed())
	rest, err := io.ReadAll(lab.stdout)
	g.Expect(err).NotTo(HaveOccurred())
	_ = lab.Wait()
	g.Expect(string(rest)).To(Equal("terminated\n"))
	g.Expect(lab.ProcessState.ExitCode()).To(Equal(7))
}

func TestNetworkHasLoopbackOnly(t *testing.T) {
	g := NewWithT(t)
	w := newWitness(t)
	lab := startLab(t, "network", "exec 9>"+w.path+"; cat /proc/net/dev /proc/net/fib_trie >&9")
	lab.requireIsolation(t, LevelNetwork)
	seen, err := io.ReadAll(w.open(t))
	g.Expect(err).NotTo(HaveOccurred())
	_ = lab.Wait()
	var devices []string
	for line := range strings.Lines(string(seen)) {
		if name, counters, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && strings.TrimSpace(counters) != "" {
			devices = append(devices, name)
		}
	}
	g.Expect(devices).To(Equal([]string{"lo"}))
	g.Expect(string(seen)).To(ContainSubstring("127.0.0.1"), "loopback is up")
}

func TestIsolateNeedsTheInitStage(t *testing.T) {
	t.Setenv(stageEnv, stageInit)
	_, err := Isolate(IsolateOptions{})
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("InitStage")))
}

func TestReadReady(t *testing.T) {
	g := NewWithT(t)
	g.Expect(readReady(strings.NewReader("ready"))).To(BeEmpty())
	g.Expect(readReady(strings.NewReader("mounting /proc: not permitted"))).To(ContainSubstring("mounting"))
	g.Expect(readReady(strings.NewReader(""))).To(ContainSubstring("ended early"))
}
