package inbox

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// matches reads the specification (MQTT 5, 4.7) word for word.
func matches(filter, topic string) bool {
	f, t := strings.Split(filter, "/"), strings.Split(topic, "/")
	if strings.HasPrefix(topic, "$") && (f[0] == "#" || f[0] == "+") {
		return false
	}
	for i, level := range f {
		if level == "#" { // any number of levels, the parent level included
			return len(t) >= i
		}
		if i == len(t) || level != "+" && level != t[i] {
			return false
		}
	}
	return len(f) == len(t)
}

// matchAll is Index.Match over a map of all subscriptions.
func matchAll(subs map[Member]map[string]Subscription, topic string, from Member) map[Member]Match {
	all := map[Member]Match{}
	for m, filters := range subs {
		for _, s := range filters {
			if !matches(s.Filter, topic) || s.NoLocal && m == from {
				continue
			}
			match := all[m]
			match.Member = m
			match.QoS = max(match.QoS, s.QoS)
			match.RetainAsPublished = match.RetainAsPublished || s.RetainAsPublished
			if s.Identifier != 0 {
				match.Identifiers = append(match.Identifiers, s.Identifier)
				slices.Sort(match.Identifiers)
			}
			all[m] = match
		}
	}
	return all
}

// byMember fails if a member is in the matches twice.
func byMember(t *testing.T, matches []Match) map[Member]Match {
	t.Helper()
	all := map[Member]Match{}
	for _, m := range matches {
		if _, twice := all[m.Member]; twice {
			t.Fatalf("member %d is there twice", m.Member)
		}
		all[m.Member] = m
	}
	return all
}

func TestIndexMatchesAsSpecified(t *testing.T) {
	for _, c := range []struct {
		filter, topic string
		want          bool
	}{
		{"a", "a", true},
		{"a", "b", false},
		{"a", "a/", false},
		{"a/", "a", false},
		{"/a", "a", false},
		{"/", "/", true},
		{"+", "a", true},
		{"+", "/", false},
		{"+", "", true},
		{"+/+", "/", true},
		{"/+", "/a", true},
		{"+", "/a", false},
		{"a/+/b", "a//b", true},
		{"#", "a", true},
		{"#", "/", true},
		{"/#", "/", true},
		{"/#", "a", false},
		{"a/#", "a", true},
		{"a/#", "a/", true},
		{"a/#", "a/b/c", true},
		{"a/#", "ab", false},
		{"+/#", "a", true},
		{"a/+/#", "a", false},
		{"a/+/#", "a/x", true},
		{"#", "$SYS/up", false},
		{"+/up", "$SYS/up", false},
		{"+/#", "$SYS", false},
		{"$SYS/#", "$SYS", true},
		{"$SYS/+", "$SYS/up", true},
		{"+/+", "a/$up", true},
		{"a/#", "a/$up", true},
	} {
		x := NewIndex()
		x.Subscribe(1, Subscription{Filter: c.filter})
		if got := len(x.Match(c.topic, 0, nil)) == 1; got != c.want {
			t.Errorf("%q matches %q: %v, want %v", c.filter, c.topic, got, c.want)
		}
		if got := matches(c.filter, c.topic); got != c.want {
			t.Errorf("the test's own reading of %q and %q: %v, want %v", c.filter, c.topic, got, c.want)
		}
	}
}

func TestIndexTakesSubscriptionsOfAMemberTogether(t *testing.T) {
	x := NewIndex()
	x.Subscribe(7, Subscription{Filter: "a/+", QoS: 1, Identifier: 300})
	x.Subscribe(7, Subscription{Filter: "a/#", QoS: 0, RetainAsPublished: true, Identifier: 268_435_455})
	x.Subscribe(7, Subscription{Filter: "a/b", QoS: 2, NoLocal: true, Identifier: 2})
	x.Subscribe(7, Subscription{Filter: "#", QoS: 0, Identifier: 300})
	x.Subscribe(7, Subscription{Filter: "+/b"})

	got := x.Match("a/b", 0, nil)
	want := []Match{{7, 2, true, []uint32{2, 300, 300, 268_435_455}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("from somebody else: %v, want %v", got, want)
	}

	// No Local takes out the one subscription that has it, not the member.
	own := x.Match("a/b", 7, nil)
	want = []Match{{7, 1, true, []uint32{300, 300, 268_435_455}}}
	if !reflect.DeepEqual(own, want) {
		t.Errorf("from itself: %v, want %v", own, want)
	}
}

func TestIndexNoLocalAlone(t *testing.T) {
	x := NewIndex()
	x.Subscribe(1, Subscription{Filter: "a", NoLocal: true})
	if got := x.Match("a", 1, nil); len(got) != 0 {
		t.Errorf("from itself: %v, want nothing", got)
	}
	if got := x.Match("a", 2, nil); len(got) != 1 {
		t.Errorf("from somebody else: %v, want one", got)
	}
}

// Against a map of subscriptions, with filters and topics of so few letters
// that they overlap, are replaced and are removed all the time.
func TestIndexRandom(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	path := func(levels ...string) string {
		parts := make([]string, 1+r.IntN(4))
		for i := range parts {
			parts[i] = levels[r.IntN(len(levels))]
		}
		return strings.Join(parts, "/")
	}
	filter := func() string {
		switch f := path("a", "b", "", "+", "+", "$"); r.IntN(4) {
		case 0:
			return f + "/#"
		case 1:
			return []string{"#", f}[r.IntN(2)]
		default:
			return f
		}
	}
	for round := range 15 {
		x, subs, n := NewIndex(), map[Member]map[string]Subscription{}, 0
		members := 1 + r.IntN(60)
		for step := range 1000 {
			m := Member(1 + r.IntN(members))
			if subs[m] == nil {
				subs[m] = map[string]Subscription{}
			}
			// Rounds of few subscriptions, many, and first many and then few.
			if r.IntN(100) < []int{45, 90, 100 - step/10}[round%3] {
				s := Subscription{
					Filter: filter(), QoS: byte(r.IntN(3)), NoLocal: r.IntN(4) == 0, RetainAsPublished: r.IntN(4) == 0,
					Identifier: []uint32{0, 0, 1, 2, identifiersKept - 1, identifiersKept, 268_435_455}[r.IntN(7)],
				}
				_, want := subs[m][s.Filter]
				if got := x.Subscribe(m, s); got != want {
					t.Fatalf("round %d: subscribe %d %q existed: %v, want %v", round, m, s.Filter, got, want)
				}
				subs[m][s.Filter] = s
				if !want {
					n++
				}
			} else {
				f := filter()
				for known := range subs[m] {
					if r.IntN(3) > 0 {
						f = known
					}
					break
				}
				_, want := subs[m][f]
				if got := x.Unsubscribe(m, f); got != want {
					t.Fatalf("round %d: unsubscribe %d %q existed: %v, want %v", round, m, f, got, want)
				}
				delete(subs[m], f)
				if want {
					n--
				}
			}
			if x.Len() != n {
				t.Fatalf("round %d: %d subscriptions, want %d", round, x.Len(), n)
			}
			topic, from := path("a", "b", "", "$"), Member(r.IntN(members+1))
			got, want := byMember(t, x.Match(topic, from, nil)), matchAll(subs, topic, from)
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("round %d: topic %q from %d:\n got %v\nwant %v", round, topic, from, got, want)
			}
			own := map[string]Subscription{}
			for _, s := range x.Subscriptions(m) {
				own[s.Filter] = s
			}
			if !maps.Equal(own, subs[m]) {
				t.Fatalf("round %d: subscriptions of %d:\n got %v\nwant %v", round, m, own, subs[m])
			}
			if r.IntN(50) == 0 {
				x.RemoveAll(m)
				n -= len(subs[m])
				delete(subs, m)
			}
		}

		// Without subscriptions nothing is left: every branch was given up.
		for m := range subs {
			x.RemoveAll(m)
		}
		free := uint32(1) // the root counts as such
		for n := x.tree.free; n != none; n = x.tree.at(n).parent {
			free++
		}
		if x.Len() != 0 || x.tree.table.used != 0 || free != x.tree.used || len(x.lists.free) != max(len(x.lists.all)-1, 0) {
			t.Fatalf("round %d: left: %d subscriptions, %d slots, %d of %d nodes free, %d of %d lists free",
				round, x.Len(), x.tree.table.used, free, x.tree.used, len(x.lists.free), len(x.lists.all))
		}
	}
}

// What Match returned stays, whatever is matched or changed later.
func TestIndexIdentifiersStay(t *testing.T) {
	x := NewIndex()
	x.Subscribe(1, Subscription{Filter: "a", Identifier: 5})
	x.Subscribe(2, Subscription{Filter: "a", Identifier: 5})
	x.Subscribe(2, Subscription{Filter: "+", Identifier: 4})
	before := x.Match("a", 0, nil)
	_ = append(before[0].Identifiers, 99)

	x.Subscribe(1, Subscription{Filter: "a", Identifier: 6})
	x.Subscribe(1, Subscription{Filter: "+", Identifier: 1})
	x.Unsubscribe(2, "a")
	x.Match("a", 0, make([]Match, 0, 8))

	want := map[Member]Match{1: {Member: 1, Identifiers: []uint32{5}}, 2: {Member: 2, Identifiers: []uint32{4, 5}}}
	if got := byMember(t, before); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if x.singles[6] != 6 {
		t.Errorf("the list of 6 holds %d", x.singles[6])
	}
}

func TestIndexMatchAppends(t *testing.T) {
	x := NewIndex()
	x.Subscribe(1, Subscription{Filter: "a", QoS: 1})
	x.Subscribe(1, Subscription{Filter: "#", QoS: 2})
	dst := []Match{{Member: 1, QoS: 0}}
	got := x.Match("a", 0, dst)
	if want := []Match{{Member: 1}, {Member: 1, QoS: 2}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A filter with many members goes up and down again in any order.
func TestIndexManyMembersOfOneFilter(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	x := NewIndex()
	const members = 3000
	for _, i := range r.Perm(members) {
		x.Subscribe(Member(i+1), Subscription{Filter: "all", QoS: byte(i % 3)})
	}
	got := x.Match("all", 0, nil)
	if len(got) != members {
		t.Fatalf("%d members, want %d", len(got), members)
	}
	for _, m := range got {
		if m.QoS != byte((m.Member-1)%3) {
			t.Fatalf("member %d has QoS %d", m.Member, m.QoS)
		}
	}
	for left, i := range r.Perm(members) {
		if !x.Unsubscribe(Member(i+1), "all") || x.Unsubscribe(Member(i+1), "all") {
			t.Fatalf("member %d: unsubscribe did not report once that it was there", i+1)
		}
		if got := len(x.Match("all", 0, nil)); got != members-left-1 {
			t.Fatalf("%d members left, want %d", got, members-left-1)
		}
	}
}

// The text of removed levels is given up while others stay as they are.
func TestIndexPacksText(t *testing.T) {
	x := NewIndex()
	long := strings.Repeat("x", 1000)
	filter := func(i int) string { return fmt.Sprintf("%s/%d/+/#", long, i) }
	for i := range 1000 {
		x.Subscribe(Member(i+1), Subscription{Filter: fmt.Sprintf("%d/%s", i, long)})
		x.Subscribe(Member(i+1), Subscription{Filter: filter(i)})
	}
	for i := range 1000 {
		x.Unsubscribe(Member(i+1), fmt.Sprintf("%d/%s", i, long))
	}
	if got := x.tree.text.size(); got > 600_000 {
		t.Errorf("%d bytes of text are kept for 1000 short levels", got)
	}
	for i := range 1000 {
		if got := x.Match(fmt.Sprintf("%s/%d/y", long, i), 0, nil); len(got) != 1 || got[0].Member != Member(i+1) {
			t.Fatalf("filter %d: %v", i, got)
		}
	}
}

// Empty levels survive that the text of removed ones is packed away.
func TestIndexEmptyLevelAfterPacking(t *testing.T) {
	x := NewIndex()
	long := []string{strings.Repeat("x", 65535), strings.Repeat("y", 65535)}
	for _, f := range append(long, "/a") {
		x.Subscribe(1, Subscription{Filter: f})
	}
	for _, f := range long {
		x.Unsubscribe(1, f)
	}
	if got := x.Match("/a", 0, nil); len(got) != 1 {
		t.Errorf("%d matches, want 1", len(got))
	}
}

// The longest topic there can be costs one step a level, also against filters
// that could branch at every level.
func TestIndexDeepTopics(t *testing.T) {
	x := NewIndex()
	deep := strings.Repeat("/", 65_535)
	branches := 0
	for i := range 1 << 10 { // all filters of "" and "+" in ten levels
		var f strings.Builder
		for bit := range 10 {
			f.WriteString([]string{"/", "+/"}[i>>bit&1])
		}
		x.Subscribe(Member(i+1), Subscription{Filter: f.String() + "#"})
		branches++
	}
	x.Subscribe(5000, Subscription{Filter: deep})
	x.Subscribe(5001, Subscription{Filter: strings.Repeat("+/", 32_767) + "+"})

	start := time.Now()
	if got := len(x.Match(deep, 0, nil)); got != branches+1 {
		t.Errorf("%d members, want %d", got, branches+1)
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("matching took %v", took)
	}
}

func TestIndexMatchAllocatesNothing(t *testing.T) {
	x := NewIndex()
	x.Subscribe(1, Subscription{Filter: "inbox/c1/#", QoS: 1})
	x.Subscribe(2, Subscription{Filter: "inbox/c2/#", QoS: 1, Identifier: 3})
	x.Subscribe(3, Subscription{Filter: "inbox/+/x", QoS: 1, Identifier: 3})
	dst := make([]Match, 0, 8)
	for _, topic := range []string{"inbox/c1/y", "inbox/c2/y", "inbox/c1/x", "nobody"} {
		if n := testing.AllocsPerRun(100, func() { dst = x.Match(topic, 0, dst[:0]) }); n != 0 {
			t.Errorf("%q: %v allocations", topic, n)
		}
	}
}

// Members counts exactly one filter, whatever lies around it.
func TestIndexMembers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	x := NewIndex()
	filters := []string{"a", "a/#", "a/+", "a/b", "#", "+", "$share/g/a", "$share/g/a/#", "$share/g/#", "", "/", "a/"}
	want := map[string]map[Member]bool{}
	for range 5000 {
		m, f := Member(1+rng.IntN(5)), filters[rng.IntN(len(filters))]
		if want[f] == nil {
			want[f] = map[Member]bool{}
		}
		switch rng.IntN(5) {
		case 0:
			x.RemoveAll(m)
			for _, members := range want {
				delete(members, m)
			}
		case 1, 2:
			x.Unsubscribe(m, f)
			delete(want[f], m)
		default:
			x.Subscribe(m, Subscription{Filter: f})
			want[f][m] = true
		}
		for _, f := range filters {
			if got := x.Members(f); got != len(want[f]) {
				t.Fatalf("%q has %d members, want %d", f, got, len(want[f]))
			}
		}
	}
	if got := x.Members("never/seen"); got != 0 {
		t.Fatalf("an unknown filter has %d members", got)
	}
}

// Subscribers yields the members of exactly one filter, ascending, as they
// subscribed last.
func TestIndexSubscribers(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	x := NewIndex()
	filters := []string{"a", "a/#", "a/+", "a/b", "#", "+", "", "/", "a/"}
	want := map[string]map[Member]Subscription{}
	for _, f := range filters {
		want[f] = map[Member]Subscription{}
	}
	for range 3000 {
		m, f := Member(1+rng.IntN(6)), filters[rng.IntN(len(filters))]
		if rng.IntN(3) == 0 {
			x.Unsubscribe(m, f)
			delete(want[f], m)
		} else {
			s := Subscription{
				Filter: f, QoS: byte(rng.IntN(3)), NoLocal: rng.IntN(2) == 0, RetainAsPublished: rng.IntN(2) == 0,
				Identifier: uint32(rng.IntN(1 << 28)),
			}
			x.Subscribe(m, s)
			want[f][m] = s
		}
		for _, f := range filters {
			got, last := map[Member]Subscription{}, Member(0)
			for m, s := range x.Subscribers(f) {
				if m <= last {
					t.Fatalf("%q: member %d after %d", f, m, last)
				}
				got[m], last = s, m
				x.Match("a/b", 0, nil) // reading meanwhile changes nothing
				x.Members(f)
			}
			if !maps.Equal(got, want[f]) {
				t.Fatalf("%q has %v, want %v", f, got, want[f])
			}
		}
	}
	for range x.Subscribers("never/seen") {
		t.Fatal("an unknown filter has a subscriber")
	}
	for _, f := range filters {
		for m := range x.Subscribers(f) { // may be left at the first
			if _, ok := want[f][m]; !ok {
				t.Fatalf("%q has member %d", f, m)
			}
			break
		}
	}
}

// However members come and go, their parts stay in order and are not left nearly
// empty, and no more is in one than is moved cheaply.
func TestIndexParts(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	x, want := NewIndex(), map[Member]bool{}
	const members = 20_000
	for step := range 200_000 {
		m := Member(1 + rng.IntN(members))
		if up := step/50_000%2 == 0; rng.IntN(4) == 0 != up {
			if got := x.Subscribe(m, Subscription{Filter: "all"}); got != want[m] {
				t.Fatalf("step %d: member %d existed: %v, want %v", step, m, got, want[m])
			}
			want[m] = true
		} else {
			if got := x.Unsubscribe(m, "all"); got != want[m] {
				t.Fatalf("step %d: member %d existed: %v, want %v", step, m, got, want[m])
			}
			delete(want, m)
		}
		if step%1000 > 0 || len(want) <= part {
			continue
		}
		r, _ := x.tree.lookUp("all")
		parts := x.lists.parts(x.tree.get(r), &space{})
		n, last := 0, Member(0)
		for i, p := range parts {
			if len(p) == 0 || len(p) > part || cap(p) > 2*part {
				t.Fatalf("step %d: part %d has %d members, and room for %d", step, i, len(p), cap(p))
			}
			if i > 0 && len(parts[i-1])+len(p) <= part/2 {
				t.Fatalf("step %d: parts %d and %d have %d and %d members", step, i-1, i, len(parts[i-1]), len(p))
			}
			for _, e := range p {
				if e.member <= last || !want[e.member] {
					t.Fatalf("step %d: member %d after %d", step, e.member, last)
				}
				last = e.member
			}
			n += len(p)
		}
		for range 100 {
			m := Member(1 + rng.IntN(members))
			if _, ok := x.lists.of(x.tree.get(r), m); ok != want[m] {
				t.Fatalf("step %d: member %d is there: %v, want %v", step, m, ok, want[m])
			}
		}
		if n != len(want) || x.Members("all") != n {
			t.Fatalf("step %d: %d members in parts, %d counted, want %d", step, n, x.Members("all"), len(want))
		}
	}
}

// A filter of its own is one node, whatever its levels, and the run of levels is
// cut where another filter leaves it.
func TestIndexRunsOfLevels(t *testing.T) {
	x := NewIndex()
	nodes := func() (n int) { return int(x.tree.used) - 1 }
	for i, c := range []struct {
		filter string
		nodes  int
	}{
		{"device/a/command/now", 1},
		{"device/a/command/now/#", 1},
		{"device/b/command/now", 3}, // device, and what follows it twice
		{"device/a/+/now", 5},       // device, a, command/now, +/now, b/command/now
		{"device/a", 5},
		{"device/a/command/#", 6},
		{"other//+", 7},
	} {
		x.Subscribe(Member(i+1), Subscription{Filter: c.filter})
		if got := nodes(); got != c.nodes {
			t.Errorf("after %q there are %d nodes, want %d", c.filter, got, c.nodes)
		}
		if subs := x.Subscriptions(Member(i + 1)); len(subs) != 1 || subs[0].Filter != c.filter {
			t.Errorf("subscription to %q is %v", c.filter, subs)
		}
	}
	for topic, want := range map[string][]Member{
		"device/a/command/now":   {1, 2, 4, 6},
		"device/a/command/now/x": {2, 6},
		"device/a/status/now":    {4},
		"device/b/command/now":   {3},
		"device/a/command":       {6},
		"device/a":               {5},
		"other//x":               {7},
		"other//x/y":             nil,
		"other/":                 nil,
	} {
		var got []Member
		for _, m := range x.Match(topic, 0, nil) {
			got = append(got, m.Member)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%q is for %v, want %v", topic, got, want)
		}
	}
}
