package pull

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// fields are those of a request, in whatever encoding it had: nil, bool, int64,
// float64, string, or []any of these. Taking one that is not as it should be notes the
// first error, which end returns.
type fields struct {
	values map[string]any
	known  []string
	err    *Error
}

func (enc encoding) decode(request []byte) (*fields, error) {
	if len(request) == 0 {
		return &fields{}, nil
	}
	decode := decodeJSON
	if enc == asMsgpack {
		decode = decodeMsgpack
	}
	values, err := decode(request)
	if err != nil {
		return nil, err
	}
	return &fields{values: values}, nil
}

func decodeJSON(request []byte) (map[string]any, error) {
	if !ValidText(request) {
		return nil, errText
	}
	dec := json.NewDecoder(bytes.NewReader(request))
	dec.UseNumber()
	var values map[string]any
	switch err := dec.Decode(&values); {
	case err != nil:
		return nil, jsonError(err)
	case values == nil:
		return nil, badRequest("a request is a JSON object, not null")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, badRequest("the request goes on behind its object, at byte %d", dec.InputOffset())
	}
	for name, v := range values {
		values[name] = plain(v)
	}
	return values, nil
}

func jsonError(err error) *Error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return badRequest("the request is not JSON: %v, at byte %d", syntax, syntax.Offset)
	case errors.As(err, &kind):
		return badRequest("a request is a JSON object, not %s", article(kind.Value))
	}
	return badRequest("the request is not JSON: it ends too early")
}

func article(noun string) string {
	if strings.HasPrefix(noun, "a") {
		return "an " + noun
	}
	return "a " + noun
}

// plain turns the numbers of JSON into those of Go.
func plain(v any) any {
	number, ok := v.(json.Number)
	if !ok {
		return v
	}
	if n, err := number.Int64(); err == nil {
		return n
	}
	f, _ := strconv.ParseFloat(string(number), 64) // an infinity if it is out of range
	return f
}

func (f *fields) take(name string) any {
	f.known = append(f.known, name)
	return f.values[name]
}

func (f *fields) fail(name, kind string) {
	if f.err == nil {
		f.err = badRequest("%s must be %s", name, kind)
	}
}

// number returns 0 if there is none, and otherwise never 0: one that is not positive
// is as good as any other such.
func (f *fields) number(name string) int {
	var n int64
	switch v := f.take(name).(type) {
	case nil:
		return 0
	case int64:
		n = v
	case float64:
		if v != math.Trunc(v) {
			f.fail(name, "a whole number")
		}
		n = int64(max(math.MinInt32, min(v, math.MaxInt32)))
	default:
		f.fail(name, "a whole number")
	}
	if n <= 0 {
		return -1
	}
	return int(min(n, math.MaxInt32))
}

func (f *fields) text(name string) string {
	switch v := f.take(name).(type) {
	case nil:
	case string:
		return v
	default:
		f.fail(name, "a text")
	}
	return ""
}

// place is text that takes the number 0 too.
func (f *fields) place(name string) string {
	if f.values[name] == int64(0) {
		f.known = append(f.known, name)
		return "0"
	}
	return f.text(name)
}

// flag returns nil if there is none.
func (f *fields) flag(name string) *bool {
	switch v := f.take(name).(type) {
	case nil:
	case bool:
		return &v
	default:
		f.fail(name, "true or false")
	}
	return nil
}

// texts returns nil if there are none, and an empty list if that was given.
func (f *fields) texts(name string) []string {
	const kind = "a list of texts"
	list, ok := f.take(name).([]any)
	if !ok {
		if f.values[name] != nil {
			f.fail(name, kind)
		}
		return nil
	}
	texts := make([]string, 0, len(list))
	for _, v := range list {
		text, ok := v.(string)
		if !ok {
			f.fail(name, kind)
			return nil
		}
		texts = append(texts, text)
	}
	return texts
}

// end returns the first error, or one that names a field that nobody has taken: always
// the same one of several.
func (f *fields) end() error {
	if f.err != nil {
		return f.err
	}
	for _, name := range slices.Sorted(maps.Keys(f.values)) {
		if !slices.Contains(f.known, name) {
			return badRequest("unknown field %.40q; there are %s", name, strings.Join(f.known, ", "))
		}
	}
	return nil
}

func readSummary(f *fields) SummaryRequest {
	return SummaryRequest{Limit: f.number("limit"), Next: f.text("next")}
}

func readPull(f *fields) PullRequest {
	return PullRequest{
		Limit:    f.number("limit"),
		MaxBytes: f.number("max_bytes"),
		Order:    f.text("order"),
		Sender:   f.text("sender"),
		Topic:    f.text("topic"),
		After:    f.place("after"),
		Before:   f.place("before"),
		Ack:      f.flag("ack"),
	}
}

func readAck(f *fields) AckRequest {
	all := func(b *bool) bool { return b != nil && *b }
	return AckRequest{
		IDs:     f.texts("ids"),
		Through: f.text("through"),
		Sender:  f.text("sender"),
		Topic:   f.text("topic"),
		All:     all(f.flag("all")),
	}
}

func readHistory(f *fields) HistoryRequest {
	return HistoryRequest{
		Limit:    f.number("limit"),
		MaxBytes: f.number("max_bytes"),
		Order:    f.text("order"),
		Sender:   f.text("sender"),
		Topic:    f.text("topic"),
		After:    f.place("after"),
		Before:   f.place("before"),
	}
}

func readMode(f *fields) ModeRequest { return ModeRequest{Mode: f.text("mode")} }

func readDelete(f *fields) DeleteRequest {
	return DeleteRequest{ID: f.text("id"), Sender: f.text("sender")}
}
