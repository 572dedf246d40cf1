package pull

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestValidText(t *testing.T) {
	for text, want := range map[string]bool{
		``: true, `{}`: true, `"a"`: true, `"日本 \u65e5\ud83d\ude00"`: true, `"\\ud800"`: true, `"\\\\ud800"`: true, `"\ufffd"`: true,
		`"\uD83D\uDE00\uD83D\uDE00"`: true, `\`: true, `"\n\u`: true, `"\uzzzz"`: true,
		`"\ud800"`: false, `"\udc00"`: false, `"\ude00\ud83d"`: false, `"\ud83d\ud83d"`: false, `"\ud83d\n"`: false, `"\\\ud800"`: false,
		`"\ud83d`: false, "\xff": false, "\xed\xa0\x80": false, "\"\xc3\"": false,
	} {
		if got := ValidText([]byte(text)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// What is valid is read as it is: without a character in the place of another.
func FuzzValidText(f *testing.F) {
	for _, s := range []string{`a`, `\ud83d\ude00`, `\ud83d`, `\\ud83d`, "\xff", `\ude00\\\ud83d\ud83d\ude00`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		quoted := []byte(`"` + s + `"`)
		var text string
		if json.Unmarshal(quoted, &text) != nil || strings.Contains(strings.ToLower(s), "fffd") || strings.ContainsRune(s, '\uFFFD') && utf8.ValidString(s) {
			return
		}
		if replaced := strings.ContainsRune(text, '\uFFFD'); replaced == ValidText(quoted) {
			t.Errorf("%q is read as %q, and that it is valid is %v", s, text, !replaced)
		}
	})
}
