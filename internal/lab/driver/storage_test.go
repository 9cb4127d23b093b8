// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The tests of this file call the service without a socket, in a bubble with a clock of its own.

func seconds(n float64) metav1.Duration {
	return metav1.Duration{Duration: time.Duration(n * float64(time.Second))}
}

// bubble is a controller in a synctest bubble and the moment at which the test began.
type bubble struct {
	*controller
	WithT
	begin time.Time
}

func inBubble(t *testing.T, behaviours []Behaviour, test func(*testing.T, *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{WithT: *NewWithT(t), begin: time.Now()}
		b.controller = &controller{size: defaultSize}
		b.storage = newStorage(1, behaviours, func(Snapshot) {})
		defer b.storage.forget()
		test(t, b)
	})
}

// create calls CreateSnapshot and returns the snapshot, the code, and the seconds since the test's beginning.
func (b *bubble) create(ctx context.Context, name, volume string) (*csi.Snapshot, codes.Code, float64) {
	response, err := b.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: volume})
	return response.GetSnapshot(), status.Code(err), b.now()
}

func (b *bubble) now() float64 { return time.Since(b.begin).Seconds() }

func TestCutAndReadyTakeTheirTime(t *testing.T) {
	inBubble(t, []Behaviour{{Match: "app/slow", Cut: seconds(2), Ready: seconds(5)}}, func(t *testing.T, b *bubble) {
		snapshot, code, at := b.create(t.Context(), "s", "app/slow")
		b.Expect(code).To(Equal(codes.OK))
		b.Expect(at).To(Equal(2.0))
		b.Expect(snapshot.GetReadyToUse()).To(BeFalse())
		b.Expect(snapshot.GetSizeBytes()).To(Equal(int64(1 << 30)))
		b.Expect(snapshot.GetCreationTime().AsTime()).To(BeTemporally("==", b.begin.Add(2*time.Second)))

		again, _, at := b.create(t.Context(), "s", "app/slow")
		b.Expect(at).To(Equal(2.0), "a snapshot that is cut isn't waited for")
		b.Expect(again.GetSnapshotId()).To(Equal(snapshot.GetSnapshotId()))
		b.Expect(again.GetReadyToUse()).To(BeFalse())

		<-time.After(5 * time.Second)
		again, _, _ = b.create(t.Context(), "s", "app/slow")
		b.Expect(again.GetReadyToUse()).To(BeTrue())

		other, _, at := b.create(t.Context(), "t", "app/other")
		b.Expect(at).To(Equal(7.0), "what nothing matches is cut at once")
		b.Expect(other.GetReadyToUse()).To(BeTrue())
		b.Expect(b.storage.cutCount()).To(Equal(2))
	})
}

func TestTheFirstMatchCounts(t *testing.T) {
	inBubble(t, []Behaviour{{Match: "app/a", Cut: seconds(1)}, {Match: "*", Cut: seconds(9)}}, func(t *testing.T, b *bubble) {
		_, _, at := b.create(t.Context(), "s", "app/a")
		b.Expect(at).To(Equal(1.0))
	})
}

func TestJitterIsBoundedAndRepeatable(t *testing.T) {
	run := func(order []string) map[string]float64 {
		took := map[string]float64{}
		inBubble(t, []Behaviour{{Match: "*", Cut: seconds(1), Jitter: seconds(1)}}, func(t *testing.T, b *bubble) {
			for _, volume := range order {
				before := b.now()
				_, _, at := b.create(t.Context(), volume, volume)
				took[volume] = at - before
			}
		})
		return took
	}
	g := NewWithT(t)
	first, second := run([]string{"app/a", "app/b"}), run([]string{"app/b", "app/a"})
	for _, volume := range []string{"app/a", "app/b"} {
		g.Expect(first[volume]).To(And(BeNumerically(">", 1), BeNumerically("<=", 2)))
		g.Expect(second[volume]).To(BeNumerically("~", first[volume], 1e-6), "the order of other volumes plays no part")
	}
	g.Expect(first["app/a"]).NotTo(Equal(first["app/b"]))
}

func TestCapacity(t *testing.T) {
	inBubble(t, []Behaviour{{Match: "*", Cut: seconds(2), Capacity: 2}}, func(t *testing.T, b *bubble) {
		var group errgroup.Group
		ends := make([]float64, 5)
		for i := range ends {
			group.Go(func() error {
				name := fmt.Sprint("s", i)
				_, _, ends[i] = b.create(t.Context(), name, "app/"+name)
				return nil
			})
			synctest.Wait() // one after the other into the queue
		}
		b.Expect(group.Wait()).To(Succeed())
		b.Expect(ends).To(Equal([]float64{2, 2, 4, 4, 6}))
	})
}

func TestCapacityWhenTheBehaviourChanges(t *testing.T) {
	inBubble(t, []Behaviour{{Match: "*", Cut: seconds(4), Capacity: 2}}, func(t *testing.T, b *bubble) {
		var group errgroup.Group
		ends := make([]float64, 5)
		for i := range ends {
			group.Go(func() error {
				name := fmt.Sprint("s", i)
				_, _, ends[i] = b.create(t.Context(), name, "app/"+name)
				return nil
			})
			synctest.Wait()
		}
		<-time.After(time.Second)
		b.storage.setBehaviours([]Behaviour{{Match: "*", Cut: seconds(1), Capacity: 1}})
		b.Expect(group.Wait()).To(Succeed())
		b.Expect(ends).To(Equal([]float64{4, 4, 5, 6, 7}), "two go on as begun and fill the new capacity, then one at a time")
	})
}

func TestHangUntilTheCallerGivesUp(t *testing.T) {
	inBubble(t, []Behaviour{{Match: "*", Hang: true}}, func(t *testing.T, b *bubble) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, code, at := b.create(ctx, "s", "app/a")
		b.Expect(code).To(Equal(codes.DeadlineExceeded))
		b.Expect(at).To(Equal(60.0))
		<-time.After(time.Hour)
		b.Expect(b.storage.list()).To(BeEmpty(), "a hang without lateCut never cuts")
	})
}

func TestHangWithLateCut(t *testing.T) {
	inBubble(t, []Behaviour{{Match: "*", Hang: true, LateCut: true, Cut: seconds(90)}}, func(t *testing.T, b *bubble) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, code, _ := b.create(ctx, "s", "app/a")
		b.Expect(code).To(Equal(codes.DeadlineExceeded))
		b.Expect(b.storage.list()).To(BeEmpty())
		<-time.After(31 * time.Second)
		b.Expect(b.storage.list()).To(ConsistOf(HaveField("Cut", BeTemporally("==", b.begin.Add(90*time.Second)))))
	})
}

func TestAHangingCallIsReleased(t *testing.T) {
	for _, lateCut := range []bool{false, true} {
		t.Run(fmt.Sprint("lateCut ", lateCut), func(t *testing.T) {
			inBubble(t, []Behaviour{{Match: "*", Hang: true, LateCut: lateCut, Cut: seconds(3)}}, func(t *testing.T, b *bubble) {
				var group errgroup.Group
				var code codes.Code
				var at float64
				group.Go(func() error { _, code, at = b.create(t.Context(), "s", "app/a"); return nil })
				<-time.After(10 * time.Second)
				b.storage.setBehaviours([]Behaviour{{Match: "other", Hang: true}, {Match: "*", Cut: seconds(2)}})
				b.Expect(group.Wait()).To(Succeed())
				b.Expect(code).To(Equal(codes.OK))
				// With a late cut the snapshot is there; otherwise it is cut now.
				b.Expect(at).To(Equal(map[bool]float64{true: 10, false: 12}[lateCut]))
				b.Expect(b.storage.cutCount()).To(Equal(1))
			})
		})
	}
}

func TestHangFor(t *testing.T) {
	inBubble(t, []Behaviour{{Match: "*", HangFor: seconds(70), LateCut: true}}, func(t *testing.T, b *bubble) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, code, _ := b.create(ctx, "s", "app/a")
		b.Expect(code).To(Equal(codes.DeadlineExceeded))
		snapshot, code, at := b.create(t.Context(), "s", "app/a")
		b.Expect(code).To(Equal(codes.OK))
		b.Expect(at).To(Equal(70.0))
		b.Expect(snapshot.GetCreationTime().AsTime()).To(BeTemporally("==", b.begin), "it was cut all the time")
		_, _, at = b.create(t.Context(), "next", "app/a")
		b.Expect(at).To(Equal(70.0), "the hang of this volume is over")
	})
}

func TestACallThatWaitsBeginsToHang(t *testing.T) {
	inBubble(t, []Behaviour{{Match: "*", Cut: seconds(10)}}, func(t *testing.T, b *bubble) {
		var group errgroup.Group
		var at float64
		group.Go(func() error { _, _, at = b.create(t.Context(), "s", "app/a"); return nil })
		<-time.After(5 * time.Second)
		b.storage.setBehaviours([]Behaviour{{Match: "*", Hang: true}})
		<-time.After(time.Minute)
		b.Expect(b.storage.cutCount()).To(Equal(1), "the storage goes on")
		b.storage.setBehaviours(nil)
		b.Expect(group.Wait()).To(Succeed())
		b.Expect(at).To(Equal(65.0))
	})
}

func TestAnAbandonedCutGoesOn(t *testing.T) {
	inBubble(t, []Behaviour{{Match: "*", Cut: seconds(90)}}, func(t *testing.T, b *bubble) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, code, _ := b.create(ctx, "s", "app/a")
		b.Expect(code).To(Equal(codes.DeadlineExceeded))
		_, code, at := b.create(t.Context(), "s", "app/a")
		b.Expect(code).To(Equal(codes.OK))
		b.Expect(at).To(Equal(90.0), "the second call joins the cut")
	})
}

func TestFailTimesForEachVolume(t *testing.T) {
	fail := &Fail{Code: "Internal", Message: "odd", Times: 2}
	inBubble(t, []Behaviour{{Match: "*", Fail: fail}}, func(t *testing.T, b *bubble) {
		for _, volume := range []string{"app/a", "app/b"} {
			var got []codes.Code
			for range 4 {
				_, code, _ := b.create(t.Context(), "snap of "+volume, volume)
				got = append(got, code)
			}
			b.Expect(got).To(Equal([]codes.Code{codes.Internal, codes.Internal, codes.OK, codes.OK}))
		}
		b.storage.setBehaviours([]Behaviour{{Match: "*", Fail: fail}})
		_, code, _ := b.create(t.Context(), "another", "app/a")
		b.Expect(code).To(Equal(codes.Internal), "the count begins anew")
	})
}

func TestFailForEver(t *testing.T) {
	inBubble(t, []Behaviour{{Match: "*", Fail: &Fail{Code: "FAILED_PRECONDITION", Message: "maximum (3)"}}}, func(t *testing.T, b *bubble) {
		for range 10 {
			_, err := b.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: "app/a"})
			b.Expect(err).To(MatchError(status.Error(codes.FailedPrecondition, "maximum (3)")))
		}
		b.Expect(b.storage.list()).To(BeEmpty())
	})
}

func TestFailWithLateCut(t *testing.T) {
	inBubble(t, []Behaviour{{Match: "*", Fail: &Fail{Code: "Internal"}, LateCut: true, Cut: seconds(1)}}, func(t *testing.T, b *bubble) {
		_, code, at := b.create(t.Context(), "s", "app/a")
		b.Expect(code).To(Equal(codes.Internal))
		b.Expect(at).To(Equal(0.0))
		<-time.After(2 * time.Second)
		b.Expect(b.storage.list()).To(HaveLen(1))
	})
}

func TestFailWhileNotReady(t *testing.T) {
	inBubble(t, []Behaviour{{Match: "*", Ready: seconds(60)}}, func(t *testing.T, b *bubble) {
		_, code, _ := b.create(t.Context(), "s", "app/a")
		b.Expect(code).To(Equal(codes.OK))
		b.storage.setBehaviours([]Behaviour{{Match: "*", Fail: &Fail{Code: "Internal"}}})
		_, code, _ = b.create(t.Context(), "s", "app/a")
		b.Expect(code).To(Equal(codes.Internal))
		<-time.After(time.Minute)
		snapshot, code, _ := b.create(t.Context(), "s", "app/a")
		b.Expect(code).To(Equal(codes.OK), "a ready snapshot has nothing left to fail at")
		b.Expect(snapshot.GetReadyToUse()).To(BeTrue())
	})
}

func TestThrottle(t *testing.T) {
	inBubble(t, []Behaviour{{Match: "*", Throttle: &Throttle{PerSecond: 2}}}, func(t *testing.T, b *bubble) {
		create := func(i int) codes.Code {
			_, code, _ := b.create(t.Context(), fmt.Sprint("s", i), fmt.Sprint("app/", i))
			return code
		}
		b.Expect([]codes.Code{create(1), create(2), create(3)}).To(Equal([]codes.Code{codes.OK, codes.OK, codes.ResourceExhausted}))
		b.Expect(create(1)).To(Equal(codes.OK), "asking again for a snapshot that exists isn't throttled")
		<-time.After(500 * time.Millisecond)
		b.Expect([]codes.Code{create(3), create(4)}).To(Equal([]codes.Code{codes.OK, codes.ResourceExhausted}))

		b.storage.setBehaviours([]Behaviour{{Match: "*", Throttle: &Throttle{PerSecond: 0.1, Code: "Unavailable", Message: "slow down"}}})
		b.Expect(create(5)).To(Equal(codes.OK))
		_, err := b.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "s6", SourceVolumeId: "app/6"})
		b.Expect(status.Convert(err)).To(Equal(status.New(codes.Unavailable, "slow down")))
	})
}

func TestDuplicatesInFlightShareOneCut(t *testing.T) {
	inBubble(t, []Behaviour{{Match: "*", Cut: seconds(2)}}, func(t *testing.T, b *bubble) {
		var group errgroup.Group
		ids := make([]string, 5)
		for i := range ids {
			group.Go(func() error {
				snapshot, _, at := b.create(t.Context(), "same", "app/a")
				ids[i] = snapshot.GetSnapshotId()
				if at != 2 {
					return fmt.Errorf("answered at %v", at)
				}
				return nil
			})
		}
		synctest.Wait()
		_, code, _ := b.create(t.Context(), "same", "app/other")
		b.Expect(code).To(Equal(codes.AlreadyExists), "already while it is being cut")
		b.Expect(group.Wait()).To(Succeed())
		b.Expect(ids).To(HaveEach(ids[0]))
		b.Expect(b.storage.cutCount()).To(Equal(1))
	})
}

func TestForgetDropsCutsUnderWay(t *testing.T) {
	inBubble(t, []Behaviour{{Match: "*", Cut: seconds(2), Capacity: 1}}, func(t *testing.T, b *bubble) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var group errgroup.Group
		for i := range 2 {
			group.Go(func() error { b.create(ctx, fmt.Sprint(i), "app/a"); return nil })
		}
		b.Expect(group.Wait()).To(Succeed())
		b.storage.forget()
		<-time.After(time.Minute)
		b.Expect(b.storage.cutCount()).To(Equal(0))
		_, code, at := b.create(t.Context(), "0", "app/a")
		b.Expect(code).To(Equal(codes.OK))
		b.Expect(at).To(Equal(63.0), "the place is free again")
	})
}
