package pull

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

func protocol(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var requests = map[string]func(*fields) any{
	OpSummary: func(f *fields) any { return readSummary(f) },
	OpPull:    func(f *fields) any { return readPull(f) },
	OpAck:     func(f *fields) any { return readAck(f) },
	OpHistory: func(f *fields) any { return readHistory(f) },
	OpMode:    func(f *fields) any { return readMode(f) },
	OpDelete:  func(f *fields) any { return readDelete(f) },
}

var answers = map[string]any{
	OpSummary: SummaryAnswer{}, OpPull: MessagesAnswer{}, OpAck: AckAnswer{}, OpHistory: MessagesAnswer{}, OpMode: ModeAnswer{},
	OpDelete: DeleteAnswer{}, "error": ErrorAnswer{}, "message": Message{}, "notice": Notice{},
}

// Each example of the documentation is what the decoder reads and the encoder writes.
func TestExamplesAreTrue(t *testing.T) {
	examples := regexp.MustCompile("(?s)```json (\\w+) ?(\\w*)\n(.*?)```").FindAllStringSubmatch(protocol(t), -1)
	seen := map[string]bool{}
	for _, e := range examples {
		what, kind, text := e[1], e[2], []byte(e[3])
		if kind == "notice" {
			what = kind
		}
		seen[what+" "+kind] = true
		if kind == "request" {
			f, err := asJSON.decode(text)
			if err != nil {
				t.Errorf("%s: %v", text, err)
				continue
			}
			if requests[what](f); f.end() != nil {
				t.Errorf("%s: %v", text, f.end())
			}
			continue
		}
		answer := reflect.New(reflect.TypeOf(answers[what]))
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		if err := dec.Decode(answer.Interface()); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var expected bytes.Buffer
		if err := json.Compact(&expected, text); err != nil {
			t.Fatal(err)
		}
		if got, err := asJSON.encode(answer.Interface()); err != nil || !bytes.Equal(got, expected.Bytes()) {
			t.Errorf("the example\n%s\nis written as\n%s, %v", expected.Bytes(), got, err)
		}
	}
	for _, operation := range Operations() {
		if !seen[operation+" request"] || !seen[operation+" answer"] {
			t.Errorf("%s has no example", operation)
		}
	}
}

// The cursors of the examples go with their requests.
func TestCursorsOfExamplesAreTrue(t *testing.T) {
	cursors := regexp.MustCompile(`"(?:position|next|through|after)": "([\w-]{30,})"`).FindAllStringSubmatch(protocol(t), -1)
	if len(cursors) < 5 {
		t.Fatalf("there are %d", len(cursors))
	}
	for _, c := range cursors {
		if _, err := parseCursor(c[1]); err != nil {
			t.Errorf("%s: %v", c[1], err)
		}
	}
}

// Everything that has a name is explained.
func TestNamesAreExplained(t *testing.T) {
	text := protocol(t)
	explained := func(kind, name string) {
		if !strings.Contains(text, "`"+name+"`") && !strings.Contains(text, `"`+name+`"`) {
			t.Errorf("%s %s is not explained", kind, name)
		}
	}
	for _, v := range []any{
		SummaryRequest{}, PullRequest{}, AckRequest{}, HistoryRequest{}, ModeRequest{}, DeleteRequest{},
		SummaryAnswer{}, MessagesAnswer{}, AckAnswer{}, ModeAnswer{}, DeleteAnswer{}, Message{}, Tally{}, Count{}, Mark{}, Gap{}, Notice{},
	} {
		for field := range reflect.TypeOf(v).Fields() {
			if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
				explained("the field", name)
			}
		}
	}
	for _, code := range []string{
		CodeBadRequest, CodeUnknownOperation, CodeUnknownID, CodeBadCursor, CodeForbidden, CodeNoSession, CodeTooLarge, CodeBusy,
		CodeFull, CodeUnavailable, CodeInternal,
	} {
		explained("the code", code)
	}
	for _, reason := range []inbox.GapReason{inbox.GapExpired, inbox.GapLimit} {
		explained("the reason", string(reason))
	}
	for _, operation := range Operations() {
		explained("the operation", "$inbox/"+operation)
	}
	for _, bound := range []int{MaxRequest, MaxLimit, MaxBytes, DefaultLimit, DefaultHistoryLimit, DefaultBytes, MinAnswer} {
		if !strings.Contains(text, thousands(bound)) {
			t.Errorf("the bound %d is not told", bound)
		}
	}
}

// The module for browsers and Node says the type of every answer.
func TestScriptHasEveryField(t *testing.T) {
	b, err := os.ReadFile("../../examples/js/mqtt-inbox.js")
	if err != nil {
		t.Fatal(err)
	}
	typedefs := regexp.MustCompile(`(?m)^ \* @typedef .*\b(\w+)\b.*$(?:\n \* @property .*$)*`)
	types := map[string]string{}
	for _, d := range typedefs.FindAllString(string(b), -1) {
		name := regexp.MustCompile(`(?m)(?:\}|@typedef \{object\}) (\w+)`).FindStringSubmatch(d)
		if name != nil {
			types[name[1]] = d
		}
	}
	for name, v := range map[string]any{
		"PullRequest": PullRequest{}, "AckRequest": AckRequest{}, "Message": Message{}, "Page": MessagesAnswer{},
		"Tally": Tally{}, "Count": Count{}, "Mark": Mark{}, "Gap": Gap{}, "Notice": Notice{},
	} {
		for field := range reflect.TypeOf(v).Fields() {
			field, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if field != "" && !regexp.MustCompile(`[\s\[{,]`+field+`[\]?]*[:\s]`).MatchString(types[name]) {
				t.Errorf("the type %s has no %s", name, field)
			}
		}
	}
}

func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
