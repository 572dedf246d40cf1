package inbox

import (
	"cmp"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
)

// The stored form of an envelope is one msgpack array. It has no id: the
// sequence is in the key, and the store knows its own number.
//
//	 0  version           int    1
//	 1  time              int    Unix milliseconds
//	 2  topic             str
//	 3  payload           bin    or nil
//	 4  QoS               int    0, 1, 2
//	 5  retain            bool
//	 6  client            str
//	 7  user              str
//	 8  expiry            int    Unix milliseconds, 0 for never
//	 9  content type      str
//	10  response topic    str
//	11  correlation data  bin    or nil for none, which is not the same as empty
//	12  payload format    int    0 absent, 1 bytes, 2 UTF-8
//	13  user properties   array  of str: key, value, key, value, ...
//	14  deleted           bool   only in the mark of a message that was deleted, which is that in history
//
// Later versions of the product may append fields, which are passed over here.
// The version goes up only when what is above changes.
const (
	envelopeVersion = 1
	envelopeFields  = 14
	markFields      = envelopeFields + 1
)

// AppendEnvelope appends the stored form of e, without its id, to dst. It
// allocates only if dst is too small. Any goroutine may call it.
func AppendEnvelope(dst []byte, e *Envelope) []byte {
	return appendRecord(dst, func(enc *msgpack.Encoder) error { return encodeEnvelope(enc, e) })
}

func encodeEnvelope(enc *msgpack.Encoder, e *Envelope) error {
	fields := envelopeFields
	if e.Deleted {
		fields = markFields
	}
	err := cmp.Or(
		enc.EncodeArrayLen(fields),
		enc.EncodeUint(envelopeVersion),
		enc.EncodeInt(e.Time),
		enc.EncodeString(e.Topic),
		enc.EncodeBytes(e.Payload),
		enc.EncodeUint(uint64(e.QoS)),
		enc.EncodeBool(e.Retain),
		enc.EncodeString(e.Client),
		enc.EncodeString(e.User),
		enc.EncodeInt(e.Expiry),
		enc.EncodeString(e.ContentType),
		enc.EncodeString(e.ResponseTopic),
		enc.EncodeBytes(e.CorrelationData),
		enc.EncodeUint(uint64(e.PayloadFormat)),
		enc.EncodeArrayLen(2*len(e.UserProperties)),
	)
	for _, p := range e.UserProperties {
		err = cmp.Or(err, enc.EncodeString(p.Key), enc.EncodeString(p.Value))
	}
	if e.Deleted {
		err = cmp.Or(err, enc.EncodeBool(true))
	}
	return err
}

// ParseEnvelope reads what [AppendEnvelope] has written. The envelope has no id
// yet, and all its strings and slices point into b: b must not change
// afterwards. One allocation, and one more for user properties.
//
// The error wraps [ErrDamaged] and names the field, or wraps [ErrNewer].
func ParseEnvelope(b []byte) (*Envelope, error) {
	e := &Envelope{}
	if err := ParseEnvelopeInto(e, b); err != nil {
		return nil, err
	}
	return e, nil
}

// ParseEnvelopeInto is [ParseEnvelope] for who looks at many envelopes and keeps none:
// what is read takes the place of what was in e, down to the room of its user
// properties. No allocation, unless there are more of those. After an error what is in
// e means nothing.
func ParseEnvelopeInto(e *Envelope, b []byte) error {
	r := NewRecordReader(b)
	n := r.Record(envelopeVersion, envelopeFields)
	*e = Envelope{
		Time:            r.Int("time"),
		Topic:           r.Text("topic"),
		Payload:         r.Bytes("payload"),
		QoS:             byte(r.Uint("QoS", 2)),
		Retain:          r.Bool("retain"),
		Client:          r.Text("client"),
		User:            r.Text("user"),
		Expiry:          r.Int("expiry"),
		ContentType:     r.Text("content type"),
		ResponseTopic:   r.Text("response topic"),
		CorrelationData: r.Bytes("correlation data"),
		PayloadFormat:   PayloadFormat(r.Uint("payload format", uint64(FormatUTF8))),
		UserProperties:  r.userProperties(e.UserProperties),
	}
	if n >= markFields {
		e.Deleted = r.Bool("deleted")
	}
	if err := r.End(n > markFields); err != nil {
		return fmt.Errorf("parse envelope: %w", err)
	}
	return nil
}

// userProperties reads user properties into room that may be used again.
func (r *RecordReader) userProperties(room []UserProperty) []UserProperty {
	const field = "user properties"
	n := r.Array(field)
	if n%2 != 0 {
		r.fail(field)
		return nil
	}
	properties := room[:0]
	if n/2 > cap(room) {
		properties = make([]UserProperty, n/2)
	}
	properties = properties[:n/2]
	for i := range properties {
		properties[i] = UserProperty{Key: r.Text(field), Value: r.Text(field)}
	}
	return properties
}
