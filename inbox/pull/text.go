package pull

import (
	"bytes"
	"strconv"
	"unicode/utf8"
)

// ValidText reports whether the texts of JSON can be read as they are: it is UTF-8, and
// has no half of a surrogate pair as an escape. What reads JSON in Go would put another
// character in the place of those. Cost: one pass; it need not be JSON.
func ValidText(json []byte) bool {
	if !utf8.Valid(json) {
		return false
	}
	for {
		i := bytes.IndexByte(json, '\\')
		if i < 0 || i+1 == len(json) {
			return true
		}
		unit, ok := escaped(json[i:])
		switch {
		case !ok:
			json = json[i+2:]
			continue
		case unit >= 0xdc00 && unit < 0xe000:
			return false
		case unit >= 0xd800 && unit < 0xdc00:
			low, ok := escaped(json[i+6:])
			if !ok || low < 0xdc00 || low >= 0xe000 {
				return false
			}
			i += 6
		}
		json = json[i+6:]
	}
}

// escaped reads the escape \uXXXX, if there is one.
func escaped(json []byte) (unit uint64, ok bool) {
	if len(json) < 6 || json[0] != '\\' || json[1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(json[2:6]), 16, 16)
	return unit, err == nil
}

var errText = badRequest("the request is not UTF-8, or has half of a surrogate pair")
