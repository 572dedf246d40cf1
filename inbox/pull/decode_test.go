package pull

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

func TestRequestsAreRead(t *testing.T) {
	no := false
	pull := func(f *fields) any { return readPull(f) }
	ack := func(f *fields) any { return readAck(f) }
	for _, c := range []struct {
		name     string
		request  map[string]any
		read     func(*fields) any
		expected any
	}{
		{"nothing", map[string]any{}, pull, PullRequest{}},
		{
			"everything", map[string]any{
				"limit": 7, "max_bytes": 8, "order": "desc", "sender": "ann", "topic": "a/#", "after": "x", "before": "y", "ack": false,
			}, pull,
			PullRequest{Limit: 7, MaxBytes: 8, Order: "desc", Sender: "ann", Topic: "a/#", After: "x", Before: "y", Ack: &no},
		},
		{"none of it", map[string]any{"limit": nil, "order": nil, "ack": nil}, pull, PullRequest{}},
		{"limit zero", map[string]any{"limit": 0}, pull, PullRequest{Limit: -1}},
		{"limit negative", map[string]any{"limit": -20}, pull, PullRequest{Limit: -1}},
		{"limit in floating point", map[string]any{"limit": 20.0}, pull, PullRequest{Limit: 20}},
		{"limit huge", map[string]any{"limit": uint64(math.MaxUint64)}, pull, PullRequest{Limit: math.MaxInt32}},
		{"limit huge in floating point", map[string]any{"limit": 1e300}, pull, PullRequest{Limit: math.MaxInt32}},
		{"the beginning", map[string]any{"after": 0, "before": "0"}, pull, PullRequest{After: "0", Before: "0"}},
		{"ids", map[string]any{"ids": []any{"a", "b"}}, ack, AckRequest{IDs: []string{"a", "b"}}},
		{"no ids", map[string]any{"ids": []any{}}, ack, AckRequest{IDs: []string{}}},
		{"all", map[string]any{"all": true, "through": "x"}, ack, AckRequest{All: true, Through: "x"}},
	} {
		for _, enc := range []encoding{asJSON, asMsgpack} {
			b, err := enc.encode(c.request)
			if err != nil {
				t.Fatal(err)
			}
			f, err := enc.decode(b)
			if err != nil {
				t.Errorf("%s, %s: %v", c.name, enc.contentType(), err)
				continue
			}
			if got := c.read(f); f.end() != nil || !reflect.DeepEqual(got, c.expected) {
				t.Errorf("%s, %s: got %+v, %v", c.name, enc.contentType(), got, f.end())
			}
		}
	}
}

func TestBadRequestsAreToldWhatIsWrong(t *testing.T) {
	packed := func(v any) string {
		b, err := msgpack.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, c := range []struct{ request, says string }{
		{"{", "it ends too early"},
		{`{"limit":`, "it ends too early"},
		{"[]", "JSON object, not an array"},
		{"7", "JSON object, not a number"},
		{"null", "JSON object, not null"},
		{`{"limit":x}`, "at byte 10"},
		{"{\"sender\":\"\xff\"}", "not UTF-8"},
		{`{"sender":"\ud800"}`, "not UTF-8"},
		{`{"sender":"\udc00\ud800"}`, "not UTF-8"},
		{packed(map[string]any{"sender": "\xff"}), "not UTF-8"},
		{packed(map[string]any{"\xff": 1}), "not UTF-8"},
		{`{} {}`, "behind its object, at byte 4"},
		{`{}x`, "behind its object"},
		{`{"limt":5}`, `unknown field "limt"; there are limit, max_bytes`},
		{`{"Limit":5}`, `unknown field "Limit"`},
		{`{"limit":"5"}`, "limit must be a whole number"},
		{`{"limit":5.5}`, "limit must be a whole number"},
		{`{"limit":{"a":[[[]]]}}`, "limit must be a whole number"},
		{`{"max_bytes":[5]}`, "max_bytes must be a whole number"},
		{`{"order":5}`, "order must be a text"},
		{`{"after":5}`, "after must be a text"},
		{`{"ack":"no"}`, "ack must be true or false"},

		{packed(map[string]any{"limt": 5}), `unknown field "limt"`},
		{packed(map[string]any{"limit": math.NaN()}), "limit must be a whole number"},
		{packed(map[string]any{"limit": "5"}), "limit must be a whole number"},
		{packed(map[string]any{"after": []any{"5"}}), "after must be a text"},
		{packed(map[string]any{"limit": 5})[:7], "it ends too early"},
		{packed(map[string]any{"limit": 5}) + "\x00", "behind its map, at byte"},
		{packed(map[string]any{"limit": map[string]int{}}), "no field has a value of this kind"},
		{packed(map[string]any{"limit": []any{[]any{}}}), "no field has a value of this kind"},
		{packed(map[int]any{5: 5}), "names of fields must be texts"},
		{"\x81\xc1", "no field has a value of this kind"},
		{"\xdf\xff\xff\xff\xff", "it ends too early"},
		{"\x81\xdb\xff\xff\xff\xff", "it ends too early"},
		{"\x81\xa1a\xdd\xff\xff\xff\xff", "it ends too early"},
		{"\x81\xa1a" + strings.Repeat("\x91", 60_000), "no field has a value of this kind"},
	} {
		f, err := encodingOf("", []byte(c.request)).decode([]byte(c.request))
		if err == nil {
			readPull(f)
			err = f.end()
		}
		var told *Error
		if !errors.As(err, &told) || told.Code != CodeBadRequest || !strings.Contains(told.Message, c.says) {
			t.Errorf("%.60q: got %v, expected %q", c.request, err, c.says)
		}
	}
	f, _ := asJSON.decode([]byte(`{"ids":["a",5]}`))
	if readAck(f); f.end() == nil {
		t.Error("an id that is a number was taken")
	}
	if _, err := asMsgpack.decode([]byte("{}")); err == nil {
		t.Error("JSON was taken for msgpack")
	}
}
