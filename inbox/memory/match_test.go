package memory

import "testing"

func TestMatches(t *testing.T) {
	cases := []struct {
		filter, topic string
		want          bool
	}{
		{"a", "a", true},
		{"a", "b", false},
		{"a", "a/b", false},
		{"a/b", "a", false},
		{"a", "A", false},
		{"a/", "a", false},
		{"a/", "a/", true},
		{"/a", "a", false},
		{"#", "a", true},
		{"#", "/", true},
		{"#", "a/b/c", true},
		{"a/#", "a", true},
		{"a/#", "a/", true},
		{"a/#", "a/b/c", true},
		{"a/#", "ab", false},
		{"a/#", "b/a", false},
		{"a/+/#", "a", false},
		{"a/+/#", "a/b", true},
		{"a/+/#", "a/b/c/d", true},
		{"+", "a", true},
		{"+", "/a", false},
		{"+", "", true},
		{"+/+", "/a", true},
		{"/+", "/a", true},
		{"a/+", "a", false},
		{"a/+", "a/", true},
		{"a/+", "a/b", true},
		{"a/+", "a/b/c", false},
		{"a/+/c", "a/b/c", true},
		{"a/+/c", "a/b/d", false},
		{"#", "$SYS/a", false},
		{"+/a", "$SYS/a", false},
		{"$SYS/#", "$SYS/a", true},
		{"$SYS/+", "$SYS/a", true},
		{"a/#", "a/$SYS", true},
		{"a/+", "a/$SYS", true},
	}
	for _, c := range cases {
		if got := matches(c.filter, c.topic); got != c.want {
			t.Errorf("matches(%q, %q) = %v, want %v", c.filter, c.topic, got, c.want)
		}
	}
}
