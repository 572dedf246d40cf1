package inbox

import (
	"bytes"
	"strings"
)

var slash = []byte{'/'}

// firstLevel returns the first level of some levels.
func firstLevel(levels string) string {
	if i := strings.IndexByte(levels, '/'); i >= 0 {
		return levels[:i]
	}
	return levels
}

// after returns what follows the first n bytes of some levels, which are whole
// levels, and whether there is more: it may be one empty level.
func after(levels string, n int) (rest string, more bool) {
	if n == len(levels) {
		return "", false
	}
	return levels[n+1:], true
}

// begins reports whether the first level of a label is this one.
func begins(label []byte, level string) bool {
	return len(label) >= len(level) && string(label[:len(level)]) == level &&
		(len(label) == len(level) || label[len(level)] == '/')
}

// common returns how many bytes of whole levels two runs begin with alike. Their
// first levels are the same.
func common(label []byte, levels string) int {
	n := min(len(label), len(levels))
	i := 0
	for i < n && label[i] == levels[i] {
		i++
	}
	if (i == len(label) || label[i] == '/') && (i == len(levels) || levels[i] == '/') {
		return i
	}
	return bytes.LastIndexByte(label[:i], '/')
}

// follow reports whether a topic goes on, from a level that begins at some
// byte, as a label says, and where its next level begins: behind its end if
// there is none.
func follow(label []byte, topic string, from int) (next int, ok bool) {
	if from > len(topic) {
		return 0, false
	}
	if end := from + len(label); end <= len(topic) && string(label) == topic[from:end] && (end == len(topic) || topic[end] == '/') {
		return end + 1, true
	}
	for more := true; more; {
		if from > len(topic) {
			return 0, false
		}
		var level []byte
		level, label, more = bytes.Cut(label, slash)
		end := from + len(firstLevel(topic[from:]))
		if string(level) != "+" && string(level) != topic[from:end] {
			return 0, false
		}
		from = end + 1
	}
	return from, true
}
