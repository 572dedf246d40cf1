package badger

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// fleet is very many sessions whose receivers are away.
type fleet struct {
	name   string
	expiry inbox.Expiry
	filter func(r inbox.Receiver) string
	stream bool // they are members of a stream
}

var fleets = []fleet{
	{"own filter", inbox.ExpiryNever, func(r inbox.Receiver) string { return "device/" + string(r) + "/command" }, false},
	{"one filter", inbox.ExpiryNever, func(inbox.Receiver) string { return "all/devices" }, false},
	{"one stream", inbox.ExpiryNever, func(inbox.Receiver) string { return "all/devices" }, true},
	{"own filter with expiry", 90 * 24 * 3600, func(r inbox.Receiver) string { return "device/" + string(r) + "/command" }, false},
}

// fill writes the records of n sessions into a new store, as if they had
// connected in no particular order.
func (f fleet) fill(t testing.TB, dir string, n int) {
	t.Helper()
	s, err := Open(f.options(dir))
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	db, lock, err := openDB(f.options(dir))
	if err != nil {
		t.Fatal(err)
	}
	batch := db.NewWriteBatch()
	put := func(key, value []byte, err error) {
		if err == nil {
			err = batch.Set(key, value)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ended := time.Now().UnixMilli()
	if f.stream {
		r := streamReceiver(f.filter(""))
		value, err := appendRecord(nil, sessionVersion, string(r), uint64(n+1), uint64(inbox.ExpiryNever), ended)
		put(sessionKey(r), value, err)
	}
	for i, number := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
		inc := incarnation(i + 1)
		r := inbox.Receiver(fmt.Sprintf("device-%06d", number))
		value, err := appendRecord(nil, sessionVersion, string(r), uint64(inc), uint64(f.expiry), ended)
		put(sessionKey(r), value, err)
		sub := subscriptionRecord{Subscription: inbox.Subscription{Filter: f.filter(r), QoS: 1}, subscribed: true, member: f.stream}
		value, err = appendSubscription(nil, sub)
		put(subscriptionKey(inc, sub.Filter), value, err)
	}
	put(keyIncarnation, binary.BigEndian.AppendUint64(nil, uint64(n)+2), nil)
	if err := batch.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
}

func (f fleet) options(dir string) Options {
	return Options{Dir: dir, Reserve: -1, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

// opened is what a process says about itself once it has opened a store.
type opened struct {
	Took     time.Duration
	Sessions int
	Heap     uint64            // bytes in use after a collection
	Matched  int               // receivers of two topics
	Status   map[string]uint64 // the sizes in /proc/self/status, bytes
}

// resident is what of the process is in memory.
func (o opened) resident() uint64 {
	return o.Status["RssAnon"] + o.Status["RssFile"] + o.Status["RssShmem"]
}

const openedDir = "MQTT_INBOX_OPEN_DIR"

// TestOpenInChild is the child of [openInChild].
func TestOpenInChild(t *testing.T) {
	dir := os.Getenv(openedDir)
	if dir == "" {
		t.Skip("runs as a process of its own, for other tests")
	}
	start := time.Now()
	s, err := Open(fleet{}.options(dir))
	if err != nil {
		t.Fatal(err)
	}
	o := opened{Took: time.Since(start), Status: status(t)}
	o.Sessions = int(s.sessions.used) - 1 - len(s.streams.byFilter)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	o.Heap = m.HeapAlloc
	o.Matched = len(s.index.Match("all/devices", 0, nil)) + len(s.index.Match("device/device-000123/command", 0, nil))
	if err := json.NewEncoder(os.Stderr).Encode(o); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func status(t testing.TB) map[string]uint64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[string]uint64{}
	for line := range strings.Lines(string(b)) {
		var name string
		var kib uint64
		if n, _ := fmt.Sscanf(strings.Replace(line, ":", " ", 1), "%s %d kB", &name, &kib); n == 2 {
			sizes[name] = kib << 10
		}
	}
	return sizes
}

// openInChild opens a store in a process of its own.
func openInChild(t testing.TB, dir string) (o opened) {
	t.Helper()
	c := exec.Command(os.Args[0], "-test.run=^TestOpenInChild$")
	c.Env = append(os.Environ(), openedDir+"="+dir)
	var said strings.Builder
	c.Stderr = &said
	if out, err := c.Output(); err != nil {
		t.Fatalf("%v: %s%s", err, out, said.String())
	}
	if err := json.Unmarshal([]byte(said.String()), &o); err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	return o
}

// What a session costs whose receiver is away, measured on a process that has
// opened a store of many.
func TestManySessionsAreSmall(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("asks Linux what a process has in memory")
	}
	if raceEnabled {
		t.Skip("the race detector has memory of its own")
	}
	const n, limit = 100_000, 400 // of which one of Badger's memtables may be 100
	empty := t.TempDir()
	fleet{}.fill(t, empty, 0)
	without := openInChild(t, empty)
	for _, f := range fleets {
		t.Run(f.name, func(t *testing.T) {
			dir := t.TempDir()
			f.fill(t, dir, n)
			o := openInChild(t, dir)
			if o.Sessions != n || o.Matched == 0 {
				t.Fatalf("%d sessions, %d of them match, want %d and some", o.Sessions, o.Matched, n)
			}
			each := (float64(o.resident()) - float64(without.resident())) / n
			t.Logf("%.0f bytes a session", each)
			if each > limit {
				t.Errorf("%.0f bytes a session, want at most %d", each, limit)
			}
		})
	}
}

// What the tests above measure as a whole, part by part.
func TestRestingSessionIsSmall(t *testing.T) {
	if got := unsafe.Sizeof(resting{}); got > 40 {
		t.Errorf("a session takes %d bytes, want at most 40", got)
	}
	if got := unsafe.Sizeof(timer{}); got > 16 {
		t.Errorf("a timer takes %d bytes, want at most 16", got)
	}
}

// A million sessions whose receivers are away: what the process that opens
// their store has in memory then, and how long that takes.
func BenchmarkMillion(b *testing.B) {
	const n = 1_000_000
	for _, f := range append(fleets, fleet{name: "empty"}) {
		b.Run(strings.ReplaceAll(f.name, " ", "-"), func(b *testing.B) {
			dir := b.TempDir()
			if f.filter != nil {
				f.fill(b, dir, n)
			} else {
				f.fill(b, dir, 0)
			}
			for b.Loop() {
				o := openInChild(b, dir)
				if f.filter != nil && o.Sessions != n {
					b.Fatalf("%d sessions, want %d", o.Sessions, n)
				}
				b.ReportMetric(o.Took.Seconds(), "s/open")
				b.ReportMetric(float64(o.resident())/1e6, "MB-resident")
				b.ReportMetric(float64(o.Status["RssAnon"])/1e6, "MB-anon")
				b.ReportMetric(float64(o.Status["RssFile"])/1e6, "MB-file")
				b.ReportMetric(float64(o.Status["VmHWM"])/1e6, "MB-peak")
				b.ReportMetric(float64(o.Heap)/1e6, "MB-heap")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}
