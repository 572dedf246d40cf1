package pull

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

var fullEnvelope = inbox.Envelope{
	ID:              inbox.MessageID{Sequence: 0x1a2b, Store: 0xc0ffee01},
	Time:            1_760_000_000_123,
	Topic:           "chat/room/7",
	Payload:         []byte("good <day>, \"ann\""),
	QoS:             1,
	Retain:          true,
	Client:          "ann-phone",
	User:            "ann",
	Expiry:          1_760_000_600_000,
	ContentType:     "text/plain",
	ResponseTopic:   "chat/answers",
	CorrelationData: []byte{1, 2, 0xff},
	PayloadFormat:   inbox.FormatUTF8,
	UserProperties:  []inbox.UserProperty{{Key: "k", Value: "1"}, {Key: "k", Value: "2"}},
}

func TestMessageShapes(t *testing.T) {
	binary := inbox.Envelope{ID: inbox.MessageID{Sequence: 1}, Topic: "a", Client: "c", Payload: []byte{0xff, 0}, PayloadFormat: inbox.FormatBytes}
	deleted := fullEnvelope
	deleted.Deleted = true
	erased := inbox.Envelope{ID: inbox.MessageID{Sequence: 1}, Topic: "a", Deleted: true}
	for _, c := range []struct {
		name     string
		envelope inbox.Envelope
		expected string
	}{
		{"every field", fullEnvelope, `{"id":"0000000000001a2b-c0ffee01","time":"2025-10-09T08:53:20.123Z","topic":"chat/room/7","sender":"ann",` +
			`"client":"ann-phone","qos":1,"retain":true,"payload":"good <day>, \"ann\"","payload_format":1,"content_type":"text/plain",` +
			`"response_topic":"chat/answers","correlation_base64":"AQL/","properties":[["k","1"],["k","2"]],"expires":"2025-10-09T09:03:20.000Z"}`},
		{"bytes", binary, `{"id":"0000000000000001-00000000","time":"1970-01-01T00:00:00.000Z","topic":"a","sender":"c","client":"c",` +
			`"payload_base64":"/wA=","payload_format":0}`},
		{"deleted", deleted, `{"id":"0000000000001a2b-c0ffee01","time":"2025-10-09T08:53:20.123Z","topic":"chat/room/7","sender":"ann","deleted":true}`},
		{"erased", erased, `{"id":"0000000000000001-00000000","time":"1970-01-01T00:00:00.000Z","topic":"a","deleted":true}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := messageOf(&c.envelope)
			b, err := asJSON.encode(&m)
			if err != nil || string(b) != c.expected {
				t.Errorf("got      %s, %v\nexpected %s", b, err, c.expected)
			}
			for _, enc := range []encoding{asJSON, asMsgpack} {
				var got Message
				if b, err = enc.encode(&m); err == nil {
					err = decode(enc, b, &got)
				}
				if err != nil || !reflect.DeepEqual(got, m) {
					t.Errorf("%s: got %+v, %v, expected %+v", enc.contentType(), got, err, m)
				}
			}
			if want := c.envelope.Payload; !c.envelope.Deleted && !bytes.Equal(m.Content(), want) {
				t.Errorf("the content is %q, expected %q", m.Content(), want)
			}
		})
	}
}

func decode(enc encoding, b []byte, v any) error {
	if enc == asMsgpack {
		return msgpack.Unmarshal(b, v)
	}
	return json.Unmarshal(b, v)
}

// The names of msgpack are those of JSON, but for the payload.
func TestNamesAreTheSameInBothEncodings(t *testing.T) {
	m := messageOf(&fullEnvelope)
	count := &Count{3, 400, true}
	for _, answer := range []any{
		&MessagesAnswer{Messages: []Message{m}, Gaps: []Gap{{1, 2, 3, "limit"}}, Next: "n", More: true, Remaining: count},
		&SummaryAnswer{
			Position: "p", Count: *count, Next: "n", More: true,
			Senders: []Tally{{Sender: "ann", Count: *count, Truncated: true}}, Topics: []Tally{{Topic: "a"}},
		},
		&AckAnswer{3}, &ModeAnswer{"pull"}, &DeleteAnswer{1}, &ErrorAnswer{&Error{"c", "m"}},
	} {
		var values [2]any
		for _, enc := range []encoding{asJSON, asMsgpack} {
			b, err := enc.encode(answer)
			if err == nil {
				err = decode(enc, b, &values[enc])
			}
			if err != nil {
				t.Fatal(err)
			}
			again := reflect.New(reflect.TypeOf(answer).Elem())
			if err := decode(enc, b, again.Interface()); err != nil || !reflect.DeepEqual(again.Interface(), answer) {
				t.Errorf("%s: %+v is read as %+v, %v", enc.contentType(), answer, again, err)
			}
		}
		inJSON, _ := json.Marshal(values[0])
		inMsgpack, _ := json.Marshal(values[1])
		if !bytes.Equal(inJSON, inMsgpack) {
			t.Errorf("JSON    %s\nmsgpack %s", inJSON, inMsgpack)
		}
	}
}

func TestEncodingOfRequest(t *testing.T) {
	for _, c := range []struct {
		contentType, request string
		expected             encoding
	}{
		{"", "", asJSON},
		{"", "{}", asJSON},
		{"", "\x80", asMsgpack},
		{"", "\x8f", asMsgpack},
		{"", "\xde\x00\x00", asMsgpack},
		{"", "\xdf\x00\x00\x00\x00", asMsgpack},
		{"", "\x90", asJSON},
		{"application/msgpack", "", asMsgpack},
		{"Application/MsgPack; q=1", "{}", asMsgpack},
		{"application/x-msgpack", "", asMsgpack},
		{"application/json", "\x80", asJSON},
		{"application/json; charset=utf-8", "{}", asJSON},
		{"text/plain", "\x80", asMsgpack},
		{";;;", "{}", asJSON},
	} {
		if got := encodingOf(c.contentType, []byte(c.request)); got != c.expected {
			t.Errorf("%q %q: got %s", c.contentType, c.request, got.contentType())
		}
	}
}

// What is counted is never less than what is written, and not much more.
func TestSizesAreBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		m := randomMessage(r)
		tally := Tally{Sender: randomText(r), Topic: randomText(r), Count: Count{r.Int64(), r.Int64(), r.IntN(2) == 0}}
		tally.Oldest = Mark{m.ID, m.Time}
		tally.Newest = tally.Oldest
		summary := SummaryAnswer{Position: "p", Count: tally.Count, Senders: []Tally{tally}, Topics: []Tally{tally, tally}, Next: "n", More: true}
		for _, enc := range []encoding{asJSON, asMsgpack} {
			for _, c := range []struct {
				answer any
				size   int
			}{
				{&m, enc.messageSize(&m)},
				{&tally, tallySize(&tally)},
				{&summary, summarySize(&summary)},
			} {
				b, err := enc.encode(c.answer)
				if err != nil {
					t.Fatal(err)
				}
				if len(b)+1 > c.size { // and a comma
					t.Fatalf("%s: %d bytes counted as %d: %q", enc.contentType(), len(b), c.size, b)
				}
				if enc == asJSON && c.size > 3*len(b)/2+1000 {
					t.Fatalf("%d bytes counted as %d: %q", len(b), c.size, b)
				}
			}
		}
	}
}

func TestPagesHaveRoomForWhatIsNotMessages(t *testing.T) {
	c := cursor{kind: ofHistory, walk: math.MaxUint64, first: math.MaxUint64, at: math.MaxUint64}
	answer := MessagesAnswer{
		Messages: []Message{}, Next: c.String(), More: true,
		Remaining: &Count{math.MaxInt64, math.MaxInt64, true},
		Gaps:      make([]Gap, minGaps),
	}
	for i := range answer.Gaps {
		answer.Gaps[i] = Gap{math.MaxInt64, math.MaxInt64, math.MaxInt64, string(inbox.GapExpired)}
	}
	for _, enc := range []encoding{asJSON, asMsgpack} {
		if b, err := enc.encode(&answer); err != nil || len(b) > skeletonSize+minGaps*gapSize {
			t.Errorf("%s: %d bytes counted as %d, %v", enc.contentType(), len(b), skeletonSize+minGaps*gapSize, err)
		}
	}
	bare := Message{ID: fullEnvelope.ID.String(), Expires: math.MaxInt64, PayloadBytes: math.MaxInt}
	if n := asJSON.messageSize(&bare); n > MinAnswer-skeletonSize-minGaps*gapSize {
		t.Errorf("a message without its texts takes %d bytes, and there are %d", n, MinAnswer-skeletonSize-minGaps*gapSize)
	}
	continued := c
	continued.next = strings.Repeat("n", 64)
	few := SummaryAnswer{Position: c.String(), Next: continued.String(), Senders: make([]Tally, 1), Topics: make([]Tally, 1)}
	if n := summarySize(&few); n > MinAnswer {
		t.Errorf("two tallies without their names take %d bytes", n)
	}
}

func randomMessage(r *rand.Rand) Message {
	e := inbox.Envelope{
		ID: inbox.MessageID{Sequence: inbox.Position(r.Uint64()), Store: r.Uint32()}, Time: r.Int64N(1 << 50), Topic: randomText(r),
		Payload: []byte(randomText(r)), QoS: byte(r.IntN(3)), Retain: r.IntN(2) == 0, Client: randomText(r), User: randomText(r),
		Expiry: r.Int64N(2) * r.Int64N(1<<50), ContentType: randomText(r), ResponseTopic: randomText(r),
		CorrelationData: []byte(randomText(r)), PayloadFormat: inbox.PayloadFormat(r.IntN(3)), Deleted: r.IntN(10) == 0,
	}
	for range r.IntN(4) {
		e.UserProperties = append(e.UserProperties, inbox.UserProperty{Key: randomText(r), Value: randomText(r)})
	}
	m := messageOf(&e)
	asJSON.shrink(&m, 2000, r.IntN(4000))
	return m
}

// randomText may be empty, long, not UTF-8, or consist of what JSON escapes.
func randomText(r *rand.Rand) string {
	n := r.IntN(20)
	if r.IntN(20) == 0 {
		n = r.IntN(70_000)
	}
	alphabets := []string{"abc/", "\x00\x1f\n\"\\<>&", "\u2028\u2029é😀", "\xff\xc3\xe2\x80a"}
	alphabet := alphabets[r.IntN(len(alphabets))]
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[r.IntN(len(alphabet))]
	}
	return string(b)
}

// What a later server adds to its answers is passed over.
func TestUnknownFieldsOfAnswersArePassedOver(t *testing.T) {
	later := map[string]any{"messages": []any{map[string]any{"id": "x", "later": []any{1, map[string]any{"a": nil}}, "topic": "a"}}, "later": 1}
	for _, enc := range []encoding{asJSON, asMsgpack} {
		b, err := enc.encode(later)
		var answer MessagesAnswer
		if err == nil {
			err = decode(enc, b, &answer)
		}
		if err != nil || len(answer.Messages) != 1 || answer.Messages[0].ID != "x" || answer.Messages[0].Topic != "a" {
			t.Errorf("%s: got %+v, %v", enc.contentType(), answer, err)
		}
	}
}
