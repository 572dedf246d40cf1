package storetest

import (
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestCovers(t *testing.T) {
	cases := []struct {
		filter, topic string
		want          bool
	}{
		{"a/#", "a", true},
		{"a/#", "ab", false},
		{"a/+/#", "a/b", true},
		{"a/+/#", "a", false},
		{"+", "a/b", false},
		{"+/+", "/", true},
		{"#", "$SYS", false},
		{"$SYS/#", "$SYS", true},
		{"a.b", "axb", false},
	}
	for _, c := range cases {
		if got := covers(c.filter, c.topic); got != c.want {
			t.Errorf("covers(%q, %q) = %v, want %v", c.filter, c.topic, got, c.want)
		}
	}
}
