package bench

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"
)

func stockTargets(t *testing.T, names ...string) []Target {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	targets, err := Targets(executable, names...)
	if err != nil {
		t.Fatal(err)
	}
	return targets
}

func TestAckAgainstStock(t *testing.T) {
	o := AckOptions{
		Targets:   stockTargets(t, Raw, Mochi),
		Shapes:    []Shape{{2, 10}},
		Receivers: []int{3},
		Size:      64,
		Count:     600,
		Runs:      1,
		Verify:    true,
		Patience:  time.Minute,
		Dir:       t.TempDir(),
		Log:       slog.New(slog.DiscardHandler),
	}
	results, err := Ack(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 2 {
		t.Fatalf("%d results, want 2", len(results))
	}
	disk, mochi := results[0], results[1]
	if disk.Messages != 600 || disk.Syncs != 1.0/20 || disk.Rate <= 0 {
		t.Errorf("raw: %+v", disk)
	}
	// Stock mochi loses none of a few messages, but puts them out of order.
	if mochi.Messages != 600 || mochi.Syncs >= 0 || !mochi.Verified || mochi.Faults.Lost != 0 || mochi.Ack.P50 <= 0 {
		t.Errorf("mochi: %+v", mochi)
	}

	var out bytes.Buffer
	if err := (Results{Acks: results}).Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"mochi", "2×10", "msg/s", "unknown"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
}

// A broker that is not allowed to break its promises, and does.
func TestFaultsOfTheBrokerUnderTestFail(t *testing.T) {
	targets := stockTargets(t, Mochi)
	targets[0].ours = true
	_, err := Ack(t.Context(), AckOptions{
		Targets:   targets,
		Shapes:    []Shape{{1, 100}},
		Receivers: []int{1},
		Size:      64,
		Count:     9000, // stock mochi keeps 8,192
		Runs:      1,
		Verify:    true,
		Patience:  200 * time.Millisecond,
		Dir:       t.TempDir(),
		Log:       slog.New(slog.DiscardHandler),
	})
	if !errors.Is(err, ErrFaults) {
		t.Errorf("error: %v, want %v", err, ErrFaults)
	}
}

func TestReplayAgainstStock(t *testing.T) {
	replays, starts, err := Replay(t.Context(), ReplayOptions{
		Targets:   stockTargets(t, Raw, Mochi),
		Receivers: []int{2},
		Messages:  800,
		Size:      64,
		Patience:  time.Minute,
		Dir:       t.TempDir(),
		Log:       slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(replays) != 1 || len(starts) != 0 {
		t.Fatalf("%d replays and %d starts, want 1 and 0", len(replays), len(starts))
	}
	r := replays[0]
	if r.Messages != 800 || r.Faults.Lost != 0 || r.First.P50 <= 0 || r.Rate <= 0 || r.Pages.Max <= 0 {
		t.Errorf("result: %+v", r)
	}
	if r.Waiting.Anonymous == 0 || r.Waiting.Resident == 0 || r.Waiting.Heap == 0 {
		t.Errorf("memory: %+v", r.Waiting)
	}
}

func TestShapeText(t *testing.T) {
	var s Shape
	if err := s.UnmarshalText([]byte("8x100")); err != nil || s != (Shape{8, 100}) {
		t.Errorf("8x100 reads as %v, %v", s, err)
	}
	for _, text := range []string{"", "8", "0x1", "1x0", "1x70000", "axb"} {
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is taken as %v", text, s)
		}
	}
}
