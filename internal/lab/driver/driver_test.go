// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// served is a driver that serves on a real socket, and clients for it.
type served struct {
	*Driver
	csi.IdentityClient
	csi.ControllerClient
	log    *bytes.Buffer
	socket string
	stop   func() error
}

// serve starts a driver, and stops it when the test ends.
func serve(t *testing.T, behaviours ...Behaviour) *served {
	t.Helper()
	g := NewWithT(t)
	s := &served{log: &bytes.Buffer{}, socket: socketPath(t)}
	var err error
	s.Driver, err = New(Config{Name: "lab.csi.clipper.dev", Socket: s.socket, Behaviours: behaviours, Log: s.log})
	g.Expect(err).NotTo(HaveOccurred())
	conn, err := grpc.NewClient("unix://"+s.socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	g.Expect(err).NotTo(HaveOccurred())
	s.IdentityClient, s.ControllerClient = csi.NewIdentityClient(conn), csi.NewControllerClient(conn)

	ctx, cancel := context.WithCancel(t.Context())
	var group errgroup.Group
	group.Go(func() error { return s.Serve(ctx) })
	s.stop = func() error {
		cancel()
		return errors.Join(group.Wait())
	}
	t.Cleanup(func() {
		g.Expect(s.stop()).To(Succeed())
		g.Expect(conn.Close()).To(Succeed())
	})
	return s
}

// socketPath is short enough for a socket, which a test's own directory may not be.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "csi")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "csi.sock")
}

// create calls CreateSnapshot over the socket.
func (s *served) create(ctx context.Context, name, volume string) (*csi.Snapshot, error) {
	response, err := s.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: volume})
	return response.GetSnapshot(), err
}

// await fails the test if the condition doesn't come true in good time.
func (s *served) await(t *testing.T, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	NewWithT(t).Expect(s.Await(ctx, condition)).To(Succeed())
}

func TestIdentityAndCapabilities(t *testing.T) {
	g := NewWithT(t)
	d := serve(t)
	info, err := d.GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.GetName()).To(Equal("lab.csi.clipper.dev"))
	g.Expect(info.GetVendorVersion()).NotTo(BeEmpty())
	probe, err := d.Probe(t.Context(), &csi.ProbeRequest{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(probe.GetReady().GetValue()).To(BeTrue())
	plugin, err := d.GetPluginCapabilities(t.Context(), &csi.GetPluginCapabilitiesRequest{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(plugin.GetCapabilities()).To(ConsistOf(HaveField("GetService().GetType()", csi.PluginCapability_Service_CONTROLLER_SERVICE)))
	controller, err := d.ControllerGetCapabilities(t.Context(), &csi.ControllerGetCapabilitiesRequest{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(controller.GetCapabilities()).To(ConsistOf(
		HaveField("GetRpc().GetType()", csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT),
		HaveField("GetRpc().GetType()", csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS)))
	_, err = d.CreateVolume(t.Context(), &csi.CreateVolumeRequest{})
	g.Expect(status.Code(err)).To(Equal(codes.Unimplemented))
}

func TestSnapshotLife(t *testing.T) {
	g := NewWithT(t)
	d := serve(t)
	first, err := d.create(t.Context(), "one", "app/a")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(first.GetReadyToUse()).To(BeTrue())
	g.Expect(first.GetSourceVolumeId()).To(Equal("app/a"))
	g.Expect(first.GetSizeBytes()).To(Equal(int64(1 << 30)))
	g.Expect(first.GetCreationTime().AsTime()).To(BeTemporally("~", time.Now(), time.Minute))

	again, err := d.create(t.Context(), "one", "app/a")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again.GetSnapshotId()).To(Equal(first.GetSnapshotId()))
	_, err = d.create(t.Context(), "one", "app/b")
	g.Expect(status.Code(err)).To(Equal(codes.AlreadyExists))
	g.Expect(d.Snapshots()).To(ConsistOf(SatisfyAll(
		HaveField("ID", first.GetSnapshotId()), HaveField("Name", "one"), HaveField("Volume", "app/a"))))

	for range 2 {
		_, err = d.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: first.GetSnapshotId()})
		g.Expect(err).NotTo(HaveOccurred(), "deleting is idempotent")
	}
	g.Expect(d.Snapshots()).To(BeEmpty())
	g.Expect(d.Cuts()).To(Equal(1))
	next, err := d.create(t.Context(), "one", "app/b")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(next.GetSnapshotId()).NotTo(Equal(first.GetSnapshotId()), "an ID isn't used twice")
}

func TestBadRequests(t *testing.T) {
	g := NewWithT(t)
	d := serve(t)
	_, err := d.create(t.Context(), "", "app/a")
	g.Expect(status.Code(err)).To(Equal(codes.InvalidArgument))
	_, err = d.create(t.Context(), "one", "")
	g.Expect(status.Code(err)).To(Equal(codes.InvalidArgument))
	_, err = d.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{})
	g.Expect(status.Code(err)).To(Equal(codes.InvalidArgument))
	_, err = d.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{MaxEntries: -1})
	g.Expect(status.Code(err)).To(Equal(codes.InvalidArgument))
	for _, token := range []string{"x", "-1", "1"} {
		_, err = d.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{StartingToken: token})
		g.Expect(status.Code(err)).To(Equal(codes.Aborted), token)
	}
}

func TestListSnapshots(t *testing.T) {
	g := NewWithT(t)
	d := serve(t)
	ids := map[string]string{}
	for _, name := range []string{"1", "2", "3"} {
		snapshot, err := d.create(t.Context(), name, "app/"+name)
		g.Expect(err).NotTo(HaveOccurred())
		ids[name] = snapshot.GetSnapshotId()
	}
	list := func(req *csi.ListSnapshotsRequest) (got []string, next string) {
		response, err := d.ListSnapshots(t.Context(), req)
		g.Expect(err).NotTo(HaveOccurred())
		for _, entry := range response.GetEntries() {
			got = append(got, entry.GetSnapshot().GetSnapshotId())
		}
		return got, response.GetNextToken()
	}
	got, next := list(&csi.ListSnapshotsRequest{})
	g.Expect(got).To(Equal([]string{ids["1"], ids["2"], ids["3"]}))
	g.Expect(next).To(BeEmpty())
	got, _ = list(&csi.ListSnapshotsRequest{SnapshotId: ids["2"]})
	g.Expect(got).To(Equal([]string{ids["2"]}))
	got, _ = list(&csi.ListSnapshotsRequest{SourceVolumeId: "app/3"})
	g.Expect(got).To(Equal([]string{ids["3"]}))
	got, _ = list(&csi.ListSnapshotsRequest{SnapshotId: "none"})
	g.Expect(got).To(BeEmpty())
	got, next = list(&csi.ListSnapshotsRequest{MaxEntries: 2})
	g.Expect(got).To(Equal([]string{ids["1"], ids["2"]}))
	got, next = list(&csi.ListSnapshotsRequest{MaxEntries: 2, StartingToken: next})
	g.Expect(got).To(Equal([]string{ids["3"]}))
	g.Expect(next).To(BeEmpty())
}

func TestHangAndRelease(t *testing.T) {
	g := NewWithT(t)
	d := serve(t, Behaviour{Match: "*", Hang: true})
	var group errgroup.Group
	for _, name := range []string{"1", "2", "3"} {
		group.Go(func() error { _, err := d.create(t.Context(), name, "app/"+name); return err })
	}
	d.await(t, func() bool { return len(d.Calls()) == 3 })
	g.Expect(d.Calls()).To(HaveEach(SatisfyAll(HaveField("Code", ""), HaveField("End.IsZero()", true))))
	g.Expect(d.Cuts()).To(Equal(0))
	g.Expect(d.SetBehaviours([]Behaviour{{Match: "*", Fail: &Fail{}}})).To(MatchError(ContainSubstring("fail.code")))
	g.Expect(d.SetBehaviours(nil)).To(Succeed())
	g.Expect(group.Wait()).To(Succeed())
	g.Expect(d.Cuts()).To(Equal(3))
	g.Expect(d.PeakInFlight()).To(Equal(3))
}

func TestHangAndLateCut(t *testing.T) {
	g := NewWithT(t)
	d := serve(t, Behaviour{Match: "*", Hang: true, LateCut: true})
	ctx, cancel := context.WithCancel(t.Context())
	var group errgroup.Group
	group.Go(func() error { _, err := d.create(ctx, "1", "app/1"); return err })
	d.await(t, func() bool { return d.Cuts() == 1 })
	g.Expect(d.Calls()).To(ConsistOf(HaveField("Code", "")), "cut, and still no answer")
	cancel()
	g.Expect(status.Code(group.Wait())).To(Equal(codes.Canceled))
	d.await(t, func() bool { return d.Calls()[0].Code == "Canceled" })
	g.Expect(d.Snapshots()).To(HaveLen(1))
}

func TestFailTimesAndTheRecord(t *testing.T) {
	g := NewWithT(t)
	d := serve(t, Behaviour{Match: "*", Fail: &Fail{Code: "Internal", Message: "odd", Times: 1}})
	_, err := d.create(t.Context(), "1", "app/1")
	g.Expect(err).To(MatchError(status.Error(codes.Internal, "odd")))
	snapshot, err := d.create(t.Context(), "1", "app/1")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = d.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: snapshot.GetSnapshotId()})
	g.Expect(err).NotTo(HaveOccurred())

	d.await(t, func() bool { calls := d.Calls(); return len(calls) == 3 && calls[2].Code != "" })
	id := snapshot.GetSnapshotId()
	calls := d.Calls()
	for i, want := range []Call{
		{Method: "CreateSnapshot", Volume: "app/1", Name: "1", InFlight: 1, Code: "Internal", Message: "odd"},
		{Method: "CreateSnapshot", Volume: "app/1", Name: "1", InFlight: 1, Code: "OK", SnapshotID: id},
		{Method: "DeleteSnapshot", InFlight: 1, Code: "OK", SnapshotID: id},
	} {
		got := calls[i]
		g.Expect(got.Start).To(BeTemporally("<=", got.End))
		got.Start, got.End = time.Time{}, time.Time{}
		g.Expect(got).To(Equal(want))
	}
	g.Expect(d.stop()).To(Succeed())

	var events []string
	scanner := bufio.NewScanner(d.log)
	for scanner.Scan() {
		var entry map[string]any
		g.Expect(json.Unmarshal(scanner.Bytes(), &entry)).To(Succeed())
		g.Expect(entry).To(SatisfyAll(HaveKeyWithValue("driver", "lab.csi.clipper.dev"), HaveKey("time")))
		event := entry["event"].(string)
		if event != "cut" {
			g.Expect(entry).To(SatisfyAll(HaveKey("start"), HaveKeyWithValue("inFlight", 1.0)))
			event += " " + entry["call"].(string)
		}
		if event == "end CreateSnapshot" || event == "cut" {
			g.Expect(entry).To(SatisfyAll(HaveKeyWithValue("volume", "app/1"), HaveKeyWithValue("name", "1")))
		}
		if code, ok := entry["code"]; ok {
			g.Expect(entry).To(HaveKey("end"))
			event += " " + code.(string)
		}
		events = append(events, event)
	}
	g.Expect(events).To(Equal([]string{
		"start CreateSnapshot", "end CreateSnapshot Internal",
		"start CreateSnapshot", "cut", "end CreateSnapshot OK",
		"start DeleteSnapshot", "end DeleteSnapshot OK",
	}))
}

func TestThrottleOverTheSocket(t *testing.T) {
	g := NewWithT(t)
	d := serve(t, Behaviour{Match: "*", Throttle: &Throttle{PerSecond: 0.001}})
	_, err := d.create(t.Context(), "1", "app/1")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = d.create(t.Context(), "2", "app/2")
	g.Expect(status.Code(err)).To(Equal(codes.ResourceExhausted))
}

// TestRequestIDs asks for two errors of one kind and gets two texts, and the record keeps a refusal apart from a failure.
func TestRequestIDs(t *testing.T) {
	g := NewWithT(t)
	s := serve(t,
		Behaviour{Match: "app/denied", Fail: &Fail{Code: "Internal", Message: "not authorized"}, AppendRequestID: true},
		Behaviour{Match: "app/busy", Throttle: &Throttle{PerSecond: 0.001}},
	)
	texts := map[string]bool{}
	for range 2 {
		_, err := s.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "n", SourceVolumeId: "app/denied"})
		g.Expect(status.Code(err)).To(Equal(codes.Internal))
		g.Expect(status.Convert(err).Message()).To(MatchRegexp("^not authorized, RequestID: [0-9a-f-]{36}$"))
		texts[err.Error()] = true
	}
	g.Expect(texts).To(HaveLen(2))
	for _, name := range []string{"first", "second"} {
		_, _ = s.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: "app/busy"})
	}
	var throttled []bool
	for _, call := range s.Calls() {
		throttled = append(throttled, call.Throttled)
	}
	g.Expect(throttled).To(Equal([]bool{false, false, false, true}))
}

func TestCapacityOverTheSocket(t *testing.T) {
	g := NewWithT(t)
	d := serve(t, Behaviour{Match: "*", Cut: seconds(0.05), Capacity: 2})
	var group errgroup.Group
	for _, name := range []string{"1", "2", "3", "4", "5"} {
		group.Go(func() error { _, err := d.create(t.Context(), name, "app/"+name); return err })
	}
	g.Expect(group.Wait()).To(Succeed())
	cuts := d.Snapshots()
	for i := 2; i < len(cuts); i++ {
		g.Expect(cuts[i].Cut.Sub(cuts[i-2].Cut)).To(BeNumerically(">=", 50*time.Millisecond), "never three in one cut's time")
	}
}

func TestStopCancelsCallsAndServeStartsAgain(t *testing.T) {
	g := NewWithT(t)
	d := serve(t, Behaviour{Match: "*/hangs", Hang: true}, Behaviour{Match: "*/slow", Cut: seconds(3600)})
	_, err := d.create(t.Context(), "kept", "app/a")
	g.Expect(err).NotTo(HaveOccurred())
	var group errgroup.Group
	for _, volume := range []string{"app/hangs", "app/slow"} {
		group.Go(func() error {
			if _, err := d.create(t.Context(), volume, volume); status.Code(err) != codes.Unavailable {
				return errors.New("not cancelled: " + volume)
			}
			return nil
		})
	}
	d.await(t, func() bool { return len(d.Calls()) == 3 })
	g.Expect(d.stop()).To(Succeed())
	g.Expect(group.Wait()).To(Succeed())
	g.Expect(d.Calls()).To(HaveEach(HaveField("Code", Not(BeEmpty()))), "no call is left under way")

	ctx, cancel := context.WithCancel(t.Context())
	var server errgroup.Group
	server.Go(func() error { return d.Serve(ctx) })
	_, err = d.create(t.Context(), "kept", "app/other")
	g.Expect(status.Code(err)).To(Equal(codes.AlreadyExists), "what was cut is still there")
	cancel()
	g.Expect(server.Wait()).To(Succeed())
}

func TestListen(t *testing.T) {
	g := NewWithT(t)
	socket := socketPath(t)
	old, err := net.Listen("unix", socket)
	g.Expect(err).NotTo(HaveOccurred())
	old.(*net.UnixListener).SetUnlinkOnClose(false)
	g.Expect(old.Close()).To(Succeed())
	d, err := New(Config{Name: "d", Socket: socket})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(d.Name()).To(Equal("d"))
	g.Expect(d.Listen()).To(Succeed(), "a socket that was left behind is replaced")
	g.Expect(d.Listen()).To(Succeed())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g.Expect(d.Serve(ctx)).To(Succeed())

	nowhere, err := New(Config{Name: "d", Socket: filepath.Join(socket, "not", "a", "directory")})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(nowhere.Serve(t.Context())).To(MatchError(ContainSubstring("CSI driver d: listen unix")))
	_, err = New(Config{Name: "d"})
	g.Expect(err).To(HaveOccurred())
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	g := NewWithT(t)
	d, err := New(Config{Name: "d", Socket: "s"})
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	g.Expect(d.Await(ctx, func() bool { return false })).To(MatchError("waiting for CSI driver d: enough"))
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestALogThatCantBeWrittenIsReported(t *testing.T) {
	g := NewWithT(t)
	d, err := New(Config{Name: "d", Socket: socketPath(t), Log: brokenWriter{}})
	g.Expect(err).NotTo(HaveOccurred())
	d.recorder.end(d.recorder.start("Probe", nil), nil, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g.Expect(d.Serve(ctx)).To(MatchError(ContainSubstring("disk full")))
}
