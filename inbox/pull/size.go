package pull

import (
	"encoding/base64"
	"unicode/utf8"
)

// What follows is how long things are at most when they are encoded. It counts
// JSON; in msgpack nothing is longer, because names and texts have no more before them
// there than quotes, colon and comma take. Only bytes differ much, so they are
// told apart. Counting costs a look at each byte of a text, and no memory.

// Bounds of the parts of an answer.
const (
	cursorSize   = (cursorHead+3*10+4+2)/3*4 + 2 // without a continuation
	skeletonSize = 140 + cursorSize              // of a page: names, cursor and three numbers of 20 digits
	gapSize      = 140
	minGaps      = 2 // there is always room for so many: one for each reason
	markSize     = 80
	numberSize   = 20
)

func (enc encoding) messageSize(m *Message) int {
	n := 3 + fieldSize("id", m.ID) + timeSize("time") +
		fieldSize("topic", m.Topic) + fieldSize("sender", m.Sender) + fieldSize("client", m.Client) +
		fieldSize("payload", m.Payload) + enc.bytesSize("payload_base64", m.PayloadBase64) +
		fieldSize("content_type", m.ContentType) + fieldSize("response_topic", m.ResponseTopic) +
		asJSON.bytesSize("correlation_base64", m.CorrelationData) +
		len(`"qos":2,"retain":true,"payload_format":1,"deleted":true,"truncated":true,`)
	if m.Expires != 0 {
		n += timeSize("expires")
	}
	if m.PayloadBytes != 0 {
		n += len(`"payload_bytes":,`) + numberSize
	}
	if len(m.Properties) > 0 {
		n += len(`"properties":[],`)
		for _, p := range m.Properties {
			n += len(`["",""],`) + textSize(p[0]) + textSize(p[1])
		}
	}
	return n
}

func tallySize(t *Tally) int {
	return len(`{"messages":,"bytes":,"at_least":true,"oldest":,"newest":,"truncated":true},`) + 2*(numberSize+markSize) +
		fieldSize("sender", t.Sender) + fieldSize("topic", t.Topic)
}

// fieldSize is that of a text, which is left out if it is empty.
func fieldSize(name, s string) int {
	if s == "" {
		return 0
	}
	return len(`"":"",`) + len(name) + textSize(s)
}

func timeSize(name string) int { return len(`"":"",`) + len(name) + len(timeLayout) }

func (enc encoding) bytesSize(name string, b []byte) int {
	switch {
	case len(b) == 0:
		return 0
	case enc == asMsgpack:
		return 8 + len(name) + len(b)
	}
	return len(`"":"",`) + len(name) + base64.StdEncoding.EncodedLen(len(b))
}

// textSize is that of a text with its escapes, without its quotes.
func textSize(s string) int {
	n := len(s)
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			switch {
			case c == '"' || c == '\\':
				n++
			case c < ' ':
				n += len(`\u0000`) - 1
			}
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 || r == '\u2028' || r == '\u2029' {
			n += len(`\u2028`) - size
		}
		i += size
	}
	return n
}

// shrink leaves out of a message what is in the way of its fitting into room, the
// payload first, and returns its size.
func (enc encoding) shrink(m *Message, size, room int) int {
	if size <= room {
		return size
	}
	m.Truncated = true
	m.PayloadBytes = len(m.Payload) + len(m.PayloadBase64)
	for _, leaveOut := range []func(){
		func() { m.Payload, m.PayloadBase64 = "", nil },
		func() { m.Properties = nil },
		func() { m.CorrelationData = nil },
		func() { m.ResponseTopic = "" },
		func() { m.ContentType = "" },
		func() { m.Client = "" },
		func() { m.Sender = "" },
		func() { m.Topic = "" },
	} {
		leaveOut()
		if size = enc.messageSize(m); size <= room {
			break
		}
	}
	return size
}
