package bench

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func smallGroups(t *testing.T, targets ...Target) GroupOptions {
	return GroupOptions{
		Targets:   targets,
		Ways:      []Way{References},
		Sizes:     []int{64},
		Runs:      1,
		Patience:  time.Minute,
		Dir:       t.TempDir(),
		Log:       slog.New(slog.DiscardHandler),
		Members:   []int{4},
		Shapes:    []Shape{{2, 5}, {1, 1}},
		Count:     100,
		Verify:    true,
		Live:      3,
		LiveCount: 50,
		Returning: 3,
		Waiting:   80,
		Groups:    5,
		News:      2,
		Few:       3,
		Returns:   4,
	}
}

func TestGroupAgainstStock(t *testing.T) {
	results, err := Group(t.Context(), smallGroups(t, stockTargets(t, Raw, Mochi)...))
	if err != nil {
		t.Fatal(err)
	}
	if len(results.Publishes) != 2 || len(results.Drains) != 1 || len(results.Returns) != 1 {
		t.Fatalf("%d, %d and %d results, want 2, 1 and 1", len(results.Publishes), len(results.Drains), len(results.Returns))
	}
	for _, p := range results.Publishes {
		if p.Way != Own || p.Messages != 100 || p.Rate <= 0 || p.PerMessage <= 0 || p.Ack.P50 <= 0 || !p.Verified || p.Faults.Lost != 0 {
			t.Errorf("publishing: %+v", p)
		}
	}
	if len(results.Lives) != 2 {
		t.Fatalf("%d results of connected members, want 2", len(results.Lives))
	}
	for _, l := range results.Lives {
		if l.Members != 3 || l.Deliveries != 3*50 || l.Rate <= 0 || l.Ack.P50 <= 0 || l.Faults.Any() {
			t.Errorf("connected members: %+v", l)
		}
	}
	if d := results.Drains[0]; d.Members != 3 || d.Waiting != 80 || d.Rate <= 0 || d.First.P50 <= 0 || d.Faults.Lost != 0 {
		t.Errorf("draining: %+v", d)
	}
	r := results.Returns[0]
	if r.Groups != 5 || r.Messages != 6 || r.Returns != 4 || r.Member.P50 <= 0 || r.Plain.P50 <= 0 || r.Ratio <= 0 || r.Faults.Lost+r.Faults.Repeated != 0 {
		t.Errorf("a member of many: %+v", r)
	}
}

func TestGroupFaultsOfTheBrokerUnderTestFail(t *testing.T) {
	targets := stockTargets(t, Mochi)
	targets[0].ours = true
	o := smallGroups(t, targets...)
	o.Live, o.Returning, o.Groups = 0, 0, 0
	o.Shapes = []Shape{{1, 100}}
	o.Count = 9000 // stock mochi keeps 8,192
	o.Patience = 200 * time.Millisecond
	results, err := Group(t.Context(), o)
	if !errors.Is(err, ErrFaults) {
		t.Errorf("error: %v, want %v", err, ErrFaults)
	}
	if len(results.Publishes) != 1 || results.Publishes[0].Faults.Lost == 0 {
		t.Errorf("results: %+v", results.Publishes)
	}
}

// Only the broker under test has a choice of ways, and only if it is started here.
func TestGroupVariants(t *testing.T) {
	targets, err := Targets("mqtt-inbox", Inbox, Raw, Mochi)
	if err != nil {
		t.Fatal(err)
	}
	o := GroupOptions{Targets: append(targets, Running("127.0.0.1:1")), Ways: []Way{Copies, References, Stream}}
	var names []string
	for _, v := range o.variants() {
		names = append(names, v.String())
	}
	want := []string{"inbox, copies", "inbox, references", "inbox, stream", "mochi, its own", "127.0.0.1:1, its own"}
	if !slices.Equal(names, want) {
		t.Errorf("variants: %q, want %q", names, want)
	}
	for i, flag := range []string{"--group-stream-from=-1", "--group-push=+/group/#", "--group-pull=+/group/#"} {
		cmd, err := o.variants()[i].command(1, "data")
		if err != nil {
			t.Fatal(err)
		}
		if cmd.Args[1] != "serve" || cmd.Args[len(cmd.Args)-1] != flag {
			t.Errorf("%s is started as %q, want %s", names[i], cmd.Args, flag)
		}
	}
}

func TestFirstMiddleLast(t *testing.T) {
	for members, want := range map[int][]int{1: {0}, 2: {0, 1}, 3: {0, 1, 2}, 10: {0, 5, 9}} {
		if got := firstMiddleLast(members); !slices.Equal(got, want) {
			t.Errorf("of %d members: %v, want %v", members, got, want)
		}
	}
}

func TestAllocatedCountsNoHoles(t *testing.T) {
	dir := t.TempDir()
	before, ok := allocated(dir)
	if !ok {
		t.Skip("not known on this system")
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(dir, "sub", "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(64 << 20); err != nil {
		t.Fatal(err)
	}
	const written = 1 << 20
	if _, err := file.WriteAt(bytes.Repeat([]byte("x"), written), 8<<20); err != nil {
		t.Fatal(err)
	}
	if err := file.Sync(); err != nil {
		t.Fatal(err)
	}
	after, ok := allocated(dir)
	if grew := after - before; !ok || grew < written || grew > 2*written {
		t.Errorf("a file with %d bytes and holes takes %d, %v", written, grew, ok)
	}
}

func TestGroupTables(t *testing.T) {
	r := GroupResults{
		Publishes: []GroupPublishResult{
			{Target: Inbox, Way: Copies, Members: 100000, Size: 4096, Shape: Shape{4, 100}, Runs: 3, Messages: 0.25, Rate: 0.08, PerMessage: 12500 * time.Millisecond, Disk: 4321},
			{Target: Mosquitto, Way: Own, Members: 10, Size: 256, Shape: Shape{1, 1}, Runs: 3, Messages: 700, Rate: 233.34, PerMessage: 4286 * time.Microsecond, Disk: -1, Verified: true},
		},
		Lives: []GroupLiveResult{
			{Target: Inbox, Way: Stream, Members: 1000, Size: 256, Shape: Shape{1, 1}, Runs: 3, Deliveries: 1000000, Rate: 234567, CPU: 1234 * time.Nanosecond},
			{Target: Mosquitto, Way: Own, Members: 1000, Size: 256, Shape: Shape{1, 1}, Runs: 3, Deliveries: 999, CPU: -1},
		},
		Drains:  []GroupDrainResult{{Target: Inbox, Way: Stream, Members: 1000, Waiting: 1000, Size: 256, Runs: 3, Rate: 123456}},
		Returns: []GroupReturnResult{{Target: Inbox, Way: Stream, Groups: 1000, News: 3, Messages: 15, Size: 256, Returns: 300, Ratio: 1.25}},
	}
	var out bytes.Buffer
	if err := (Results{Groups: &r}).Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"0.25* 0.08 12500.000", "4321 not checked", "700 233.3 4.286", "unknown none", "* The time was over",
		"1×1 1000000 234567 0.00 0.00 1.23 none", "999 0 0.00 0.00 unknown", "inbox stream 1000 1000 256 123456", "300 times", "1.25 none",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
			t.Errorf("the tables lack %q:\n%s", want, out.String())
		}
	}
}
