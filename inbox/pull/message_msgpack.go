package pull

import (
	"cmp"
	"encoding/base64"

	"github.com/vmihailenco/msgpack/v5"
)

// EncodeMsgpack implements [msgpack.CustomEncoder]. It is written out because a page has
// hundreds of messages: the library takes about three times as long to leave out empty fields.
func (m *Message) EncodeMsgpack(enc *msgpack.Encoder) error {
	var count fieldWriter
	m.write(&count)
	w := fieldWriter{enc: enc, err: enc.EncodeMapLen(count.n)}
	m.write(&w)
	return w.err
}

func (m *Message) write(w *fieldWriter) {
	w.text("id", m.ID, m.ID != "")
	w.text("time", m.Time.String(), true)
	w.text("topic", m.Topic, m.Topic != "")
	w.text("sender", m.Sender, m.Sender != "")
	w.text("client", m.Client, m.Client != "")
	w.number("qos", m.QoS, m.QoS != 0)
	w.truth("retain", m.Retain)
	w.text("payload", m.Payload, m.Payload != "" && m.PayloadBase64 == nil)
	if w.begin("payload", m.PayloadBase64 != nil) {
		w.note(w.enc.EncodeBytes(m.PayloadBase64))
	}
	if m.PayloadFormat != nil {
		w.number("payload_format", *m.PayloadFormat, true)
	}
	w.text("content_type", m.ContentType, m.ContentType != "")
	w.text("response_topic", m.ResponseTopic, m.ResponseTopic != "")
	if len(m.CorrelationData) > 0 {
		w.text("correlation_base64", base64.StdEncoding.EncodeToString(m.CorrelationData), true)
	}
	if w.begin("properties", len(m.Properties) > 0) {
		w.note(w.enc.EncodeArrayLen(len(m.Properties)))
		for _, p := range m.Properties {
			w.note(w.enc.EncodeArrayLen(len(p)))
			w.note(cmp.Or(w.enc.EncodeString(p[0]), w.enc.EncodeString(p[1])))
		}
	}
	w.text("expires", m.Expires.String(), m.Expires != 0)
	w.truth("deleted", m.Deleted)
	w.truth("truncated", m.Truncated)
	w.number("payload_bytes", m.PayloadBytes, m.PayloadBytes != 0)
}

// fieldWriter writes the fields of a map that are there; without an encoder it
// counts them.
type fieldWriter struct {
	enc *msgpack.Encoder
	n   int
	err error // the first
}

// begin reports whether the value of a field is to be written now.
func (w *fieldWriter) begin(name string, there bool) bool {
	if !there {
		return false
	}
	w.n++
	if w.enc == nil {
		return false
	}
	w.note(w.enc.EncodeString(name))
	return true
}

func (w *fieldWriter) note(err error) { w.err = cmp.Or(w.err, err) }

func (w *fieldWriter) text(name, s string, there bool) {
	if w.begin(name, there) {
		w.note(w.enc.EncodeString(s))
	}
}

func (w *fieldWriter) number(name string, n int, there bool) {
	if w.begin(name, there) {
		w.note(w.enc.EncodeInt(int64(n)))
	}
}

func (w *fieldWriter) truth(name string, b bool) {
	if w.begin(name, b) {
		w.note(w.enc.EncodeBool(b))
	}
}

// DecodeMsgpack implements [msgpack.CustomDecoder]. It passes over fields that it does not know.
func (m *Message) DecodeMsgpack(dec *msgpack.Decoder) error {
	n, err := dec.DecodeMapLen()
	if err != nil {
		return err
	}
	*m = Message{}
	for range n {
		name, err := dec.DecodeString()
		if err == nil {
			err = m.read(dec, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *Message) read(dec *msgpack.Decoder, name string) (err error) {
	switch name {
	case "id":
		m.ID, err = dec.DecodeString()
	case "time":
		err = m.Time.DecodeMsgpack(dec)
	case "topic":
		m.Topic, err = dec.DecodeString()
	case "sender":
		m.Sender, err = dec.DecodeString()
	case "client":
		m.Client, err = dec.DecodeString()
	case "qos":
		m.QoS, err = dec.DecodeInt()
	case "retain":
		m.Retain, err = dec.DecodeBool()
	case "payload":
		err = m.readPayload(dec)
	case "payload_format":
		err = dec.Decode(&m.PayloadFormat)
	case "content_type":
		m.ContentType, err = dec.DecodeString()
	case "response_topic":
		m.ResponseTopic, err = dec.DecodeString()
	case "correlation_base64":
		var text string
		if text, err = dec.DecodeString(); err == nil {
			m.CorrelationData, err = base64.StdEncoding.DecodeString(text)
		}
	case "properties":
		err = dec.Decode(&m.Properties)
	case "expires":
		err = m.Expires.DecodeMsgpack(dec)
	case "deleted":
		m.Deleted, err = dec.DecodeBool()
	case "truncated":
		m.Truncated, err = dec.DecodeBool()
	case "payload_bytes":
		m.PayloadBytes, err = dec.DecodeInt()
	default:
		err = dec.Skip()
	}
	return err
}

func (m *Message) readPayload(dec *msgpack.Decoder) error {
	payload, err := dec.DecodeInterface()
	switch p := payload.(type) {
	case string:
		m.Payload = p
	case []byte:
		m.PayloadBase64 = p
	}
	return err
}
