package badger

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

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
