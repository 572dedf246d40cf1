package inbox

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Three readings of the specification agree: the one here, the index's, and the
// one of index_test.go, which goes word by word.
func TestMatchTopicAsTheIndex(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	levels := func(alphabet ...string) string {
		s := make([]string, 1+rng.IntN(4))
		for i := range s {
			s[i] = alphabet[rng.IntN(len(alphabet))]
		}
		return strings.Join(s, "/")
	}
	matched := 0
	for range 100_000 {
		filter, topic := levels("a", "b", "ab", "", "+", "$s"), levels("a", "b", "ab", "", "$s")
		switch rng.IntN(6) {
		case 0:
			filter += "/#"
		case 1:
			filter = "#"
		}
		x := NewIndex()
		x.Subscribe(1, Subscription{Filter: filter})
		want := matches(filter, topic)
		if got := len(x.Match(topic, 0, nil)) == 1; got != want {
			t.Fatalf("the index matches %q and %q: %v, want %v", filter, topic, got, want)
		}
		if got := MatchTopic(filter, topic); got != want {
			t.Fatalf("MatchTopic(%q, %q) = %v, want %v", filter, topic, got, want)
		}
		if want {
			matched++
		}
	}
	if matched < 1000 {
		t.Fatalf("%d matches: the test would test little", matched)
	}
}

// Two filters overlap if some topic of a few levels matches both.
func TestOverlap(t *testing.T) {
	words := []string{"a", "b", "", "$s"}
	topics, level := []string(nil), words
	for range 3 {
		topics = append(topics, level...)
		var next []string
		for _, t := range level {
			for _, w := range words {
				next = append(next, t+"/"+w)
			}
		}
		level = next
	}
	filters := []string{
		"a", "a/b", "a/b/a", "a/", "/a", "/", "+", "#", "+/#", "a/#", "a/b/#", "+/b", "a/+", "+/+", "b/+/a", "+/+/#", "a/+/#",
		"$s", "$s/a", "$s/#", "$s/+", "+/$s", "a/$s/#",
	}
	overlaps := 0
	for _, a := range filters {
		for _, b := range filters {
			want := slices.ContainsFunc(topics, func(topic string) bool { return MatchTopic(a, topic) && MatchTopic(b, topic) })
			if got := Overlap(a, b); got != want {
				t.Errorf("Overlap(%q, %q) = %v, want %v", a, b, got, want)
			}
			if want {
				overlaps++
			}
		}
	}
	if n := len(filters) * len(filters); overlaps < n/5 || overlaps > n*4/5 {
		t.Errorf("%d of %d overlap: the test would test little", overlaps, n)
	}
}

func TestMatchTopic(t *testing.T) {
	for _, c := range []struct {
		filter, topic string
		want          bool
	}{
		{"a/#", "a", true},
		{"a/+/#", "a", false},
		{"a/+/#", "a/b", true},
		{"a/#", "ab", false},
		{"a/+", "a/", true},
		{"+/+", "/", true},
		{"/", "/", true},
		{"a/", "a", false},
		{"a", "a/", false},
		{"+", "", true},
		{"#", "$SYS", false},
		{"+/a", "$SYS/a", false},
		{"$SYS/#", "$SYS", true},
		{"a/+", "a/$b", true},
	} {
		if got := MatchTopic(c.filter, c.topic); got != c.want {
			t.Errorf("MatchTopic(%q, %q) = %v, want %v", c.filter, c.topic, got, c.want)
		}
	}
}

func TestValidFilter(t *testing.T) {
	for filter, want := range map[string]bool{
		"a": true, "/": true, "a//b": true, "#": true, "+": true, "a/#": true, "+/+/#": true, "/#": true, "a/+/b": true, "$SYS/#": true,
		"": false, "#/": false, "#/a": false, "a#": false, "a/b#": false, "+a": false, "a/+b/c": false, "a/++": false, "##": false,
	} {
		if got := ValidFilter(filter); got != want {
			t.Errorf("ValidFilter(%q) = %v", filter, got)
		}
	}
}

func TestShared(t *testing.T) {
	for _, c := range []struct {
		filter, name, inner string
		ok                  bool
	}{
		{"$share/g/a", "g", "a", true},
		{"$share/g/a/+/#", "g", "a/+/#", true},
		{"$share/g//", "g", "/", true},
		{"$share/g/$SYS/a", "g", "$SYS/a", true},
		{"$share/ü €/#", "ü €", "#", true},
		{"$share/$share/$share/g/a", "$share", "$share/g/a", true},
		{"$share/g/", "", "", false},
		{"$share/g", "", "", false},
		{"$share//a", "", "", false},
		{"$share/", "", "", false},
		{"$share", "", "", false},
		{"$share/+/a", "", "", false},
		{"$share/g#/a", "", "", false},
		{"$share/#", "", "", false},
		{"$Share/g/a", "", "", false},
		{"$shared/g/a", "", "", false},
		{"a/$share/g/a", "", "", false},
		{"", "", "", false},
	} {
		name, inner, ok := Shared(c.filter)
		if ok != c.ok || ok && (name != c.name || inner != c.inner) {
			t.Errorf("Shared(%q) = %q, %q, %v, want %q, %q, %v", c.filter, name, inner, ok, c.name, c.inner, c.ok)
		}
	}
}

func TestGroupReceiver(t *testing.T) {
	a, b := GroupReceiver("$share/g/a"), GroupReceiver("$share/g/b")
	if a == b {
		t.Error("two groups have one inbox")
	}
	if !strings.Contains(string(a), "\x00") {
		t.Errorf("a client could be called %q", a)
	}
}

func FuzzMatchTopic(f *testing.F) {
	f.Add("a/#", "a")
	f.Add("$share/g/+", "a/b")
	f.Fuzz(func(t *testing.T, filter, topic string) {
		if i := strings.IndexByte(filter, '#'); i >= 0 && (i != len(filter)-1 || i > 0 && filter[i-1] != '/') {
			t.Skip("not a filter")
		}
		for level := range strings.SplitSeq(filter, "/") {
			if len(level) > 1 && strings.ContainsAny(level, "+") {
				t.Skip("not a filter")
			}
		}
		if strings.ContainsAny(topic, "+#") {
			t.Skip("not a topic")
		}
		if got, want := MatchTopic(filter, topic), matches(filter, topic); got != want {
			t.Errorf("MatchTopic(%q, %q) = %v, want %v", filter, topic, got, want)
		}
	})
}

func BenchmarkMatchTopic(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if !MatchTopic("building/+/floor/+/#", "building/7/floor/3/room/12/temperature") {
			b.Fatal("no match")
		}
	}
}
