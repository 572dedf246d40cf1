package hooks

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// A connection is told at once, and then once for all that has changed in a second; what
// finds no room is told later.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var mu sync.Mutex // guards got
		var got []string
		var full atomic.Bool
		w := &watch{send: func(n pull.Notice) bool {
			mu.Lock()
			defer mu.Unlock()
			room := !full.Load()
			if room {
				got = append(got, fmt.Sprintf("%v%v%v", time.Since(begin), n.Clients, n.More))
			}
			return room
		}}
		expect := func(when time.Duration, want ...string) {
			t.Helper()
			time.Sleep(when - time.Since(begin)) // the bubble's clock
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(got, want) {
				t.Errorf("told %q, want %q", got, want)
			}
			got = nil
		}
		w.note("a")
		expect(0, "0s[a]false")
		for range 100 {
			w.note("b")
			w.note("a")
		}
		expect(900 * time.Millisecond)
		expect(1500*time.Millisecond, "1s[b a]false")
		expect(5 * time.Second)
		w.note("c")
		expect(5*time.Second, "5s[c]false")

		full.Store(true)
		w.note("d")
		expect(6500 * time.Millisecond)
		full.Store(false)
		w.note("e")
		expect(7*time.Second, "7s[d e]false")

		for i := range mostWatched + 1 {
			w.note(fmt.Sprint(i))
		}
		expect(8*time.Second, "8s[0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15]true")
		w.note(strings.Repeat("l", mostWatchedBytes))
		w.note("o")
		expect(9*time.Second, "9s["+strings.Repeat("l", mostWatchedBytes)+"]true")
		w.note(strings.Repeat("l", mostWatchedBytes+1))
		expect(10*time.Second, "10s[]true")

		w.note("f")
		w.end()
		w.note("g")
		expect(time.Minute)
	})
}

// Who is told: the client itself, and so many others of the user who has asked.
func TestWatchers(t *testing.T) {
	all := newWatchers()
	watching := map[string]*watch{}
	add := func(client, user string) {
		watching[client] = &watch{client: client, user: user}
		all.add(watching[client])
	}
	told := func(client, user string) (names []string) {
		for _, w := range all.of(client, user) {
			names = append(names, w.client)
		}
		slices.Sort(names)
		return names
	}
	add("phone", "ann")
	add("tablet", "ann")
	add("web", "ben")
	add("sensor", "")
	add("lamp", "")
	for _, c := range []struct {
		client, user string
		want         []string
	}{
		{"phone", "ann", []string{"phone", "tablet"}},
		{"ann", "ann", []string{"phone", "tablet"}}, // an inbox of all her devices
		{"web", "ann", []string{"phone", "tablet", "web"}},
		{"phone", "ben", []string{"phone", "web"}},
		{"sensor", "", []string{"sensor"}},
		{"phone", "", []string{"phone"}},
		{"nobody", "", nil},
		{"nobody", "eve", nil},
	} {
		if got := told(c.client, c.user); !slices.Equal(got, c.want) {
			t.Errorf("%s, by %q: %v, want %v", c.client, c.user, got, c.want)
		}
	}

	older := watching["phone"]
	add("phone", "ann") // it has connected again
	all.remove(older)
	if got := told("phone", "ann"); !slices.Equal(got, []string{"phone", "tablet"}) {
		t.Errorf("after another connection: %v", got)
	}
	for i := range 2 * mostWatchers {
		add(fmt.Sprint("device ", i), "many")
	}
	if n := len(told("none", "many")); n != mostWatchers {
		t.Errorf("%d of one user are told", n)
	}
	if got := told("device 127", "many"); !slices.Contains(got, "device 127") {
		t.Errorf("one that is too many is not told of its own inbox")
	}
	for _, w := range watching {
		all.remove(w)
	}
	if want := newWatchers(); !reflect.DeepEqual(all, want) {
		t.Errorf("left: %+v", all)
	}
}
