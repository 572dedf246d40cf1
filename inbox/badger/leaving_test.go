package badger

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

func TestParseLeft(t *testing.T) {
	want := []leaving{
		{filter: "a/#", of: inbox.Spans{{After: 3, Through: 7}, {After: 9, Through: 300}}, others: []string{"a/b", "+/c"}},
		{filter: "a/#", of: inbox.Spans{{After: 400, Through: 401}}},
	}
	record, err := appendSubscription(nil, subscriptionRecord{Subscription: inbox.Subscription{Filter: "a/#"}, left: want})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := parseSubscription(record); err != nil || !reflect.DeepEqual(r.left, want) {
		t.Errorf("parsed %+v, %v, want %+v", r.left, err, want)
	}
	b := appendLeft(nil, want)
	for n := 1; n < len(b); n++ {
		got, err := parseLeft(b[:n], "a/#")
		if err == nil && len(got) == len(want) || err != nil && !errors.Is(err, inbox.ErrDamaged) {
			t.Errorf("%d bytes of %d: %+v, %v", n, len(b), got, err)
		}
	}
	if got, err := parseLeft(append(b[:len(b)-1:len(b)-1], 9), "a/#"); !errors.Is(err, inbox.ErrDamaged) {
		t.Errorf("more others than bytes: %+v, %v", got, err)
	}
}

// By which of its subscriptions a session has had something is not in earlier records: it
// is not given up.
func TestEarlierRecordsGiveNothingUp(t *testing.T) {
	of := inbox.Spans{{Through: 40}}
	for _, more := range [][]any{{}, {inbox.AppendSpans(nil, of)}} {
		fields := append([]any{"a", 1, false, false, 0, 0, false, false, 0, 40, []byte(nil)}, more...)
		record, err := appendRecord(nil, subscriptionVersion, fields...)
		if err != nil {
			t.Fatal(err)
		}
		r, err := parseSubscription(record)
		if err != nil || leftUntil(r.left) != 40 {
			t.Errorf("%d fields: %+v, %v, want something up to 40", len(fields), r.left, err)
		}
		if drops(r.left, 30, "a") {
			t.Errorf("%d fields: what is at 30 is given up", len(fields))
		}
	}
}

// What was given up first is forgotten first.
func TestLeavingsAreBounded(t *testing.T) {
	long := strings.Repeat("x", mostOthers/4)
	for _, c := range []struct {
		what   string
		others []string
		kept   int
	}{
		{"without others", nil, mostLeavings},
		{"a quarter of all names each", []string{long}, 4},
		{"two quarters of all names each", []string{long, long}, 2},
		{"more than all names each", []string{long, long, long, long, "a"}, 0},
	} {
		var all []leaving
		for i := range mostLeavings + 1 {
			all = append(all, leaving{filter: fmt.Sprint(i), others: c.others})
		}
		forgotten, rest := tooMany(all)
		if len(rest) != c.kept || len(forgotten)+len(rest) != len(all) {
			t.Errorf("%s: %d are kept and %d forgotten, want %d kept", c.what, len(rest), len(forgotten), c.kept)
		}
		if c.kept > 0 && rest[c.kept-1].filter != fmt.Sprint(mostLeavings) {
			t.Errorf("%s: the last that is kept is %s", c.what, rest[c.kept-1].filter)
		}
	}
}

// One UNSUBSCRIBE is one step, however many filters it has: the committer looks at what is left
// once for each that counts, writes the state once, and leaves looking at the messages to who
// reads them.
func TestManyAreGivenUpTogether(t *testing.T) {
	s, err := Open(everythingOptions(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	a := enter(t, s, "a", nil, sub("+/0", 1), sub("b/#", 1))
	var filters []string
	for i := range 2 * mostLeavings {
		filters = append(filters, fmt.Sprint("a/", i))
		if _, err := a.Subscribe(t.Context(), sub(filters[i], 1)); err != nil {
			t.Fatal(err)
		}
	}
	for _, topic := range []string{"a/0", "a/127", "b/127"} {
		appendAll(t, s, &inbox.Envelope{Topic: topic, QoS: 1})
	}
	h := a.Inbox.(*handle)
	err = s.do(t.Context(), "unsubscribe", func(g *commitGroup) error {
		g.unsubscribe(h, filters, func(string) inbox.Spans { return nil })
		if n := len(g.saved); n != 1 {
			t.Errorf("%d states are written", n)
		}
		if n := len(s.leavings[h.member]); n != mostLeavings {
			t.Errorf("%d are given up", n)
		}
		for _, l := range s.leavings[h.member] {
			if len(l.others) > 0 {
				t.Errorf("beside %s there is %v", l.filter, l.others)
			}
		}
		if n := len(h.notTaken()); n != 3 {
			t.Errorf("%d messages are ready", n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	page, err := a.Next(t.Context(), 10, 1<<20)
	if err != nil || len(page) != 2 || page[0].Envelope.Topic != "a/0" || page[1].Envelope.Topic != "b/127" {
		t.Errorf("%v, %v", page, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// What is remembered of what was had does not grow with the filters of one UNSUBSCRIBE.
func TestHadIsBounded(t *testing.T) {
	o := everythingOptions(t.TempDir())
	o.Rewind = time.Hour
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	a := enter(t, s, "a", nil, sub("#", 1))
	var all []*inbox.Envelope
	for i := range 2 * (mostHad + 1) {
		e := &inbox.Envelope{Topic: "1/2/3/4/5/6/7", QoS: 1, Client: []string{"unread", "had"}[i%2]}
		e.Payload = []byte(fmt.Sprint(i))
		all = append(all, e)
	}
	appendAll(t, s, all...)
	selected := inbox.Acknowledgement{Selection: inbox.Selection{Sender: "had"}}
	if n, err := s.Acknowledge(t.Context(), "a", selected); err != nil || n != mostHad+1 {
		t.Fatal(n, err)
	}
	var filters []string
	for set := range 2 * mostLeavings { // of the levels that are wildcards
		levels := []string{"1", "2", "3", "4", "5", "6", "7"}
		for i := range levels {
			if set>>i&1 > 0 {
				levels[i] = "+"
			}
		}
		filters = append(filters, strings.Join(levels, "/"))
	}
	had, err := a.Inbox.(*handle).hadBy(t.Context(), filters)
	if err != nil {
		t.Fatal(err)
	}
	inAll := 0
	for filter, spans := range had {
		if inAll += len(spans); len(spans) > mostHad {
			t.Errorf("%s: %d stretches", filter, len(spans))
		}
	}
	if inAll != mostHadInAll {
		t.Errorf("%d stretches in all, want %d", inAll, mostHadInAll)
	}
	closeSound(t, s, o.Dir)
}
