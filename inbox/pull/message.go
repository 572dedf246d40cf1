package pull

import (
	"unicode/utf8"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Message is one message, as its publisher has sent it. Empty fields are left out.
//
// The payload is in Payload if it is valid UTF-8, and else in PayloadBase64, which
// is base64 in JSON. In msgpack it is under the name payload in both cases: a str, or
// a bin. All other names are the same there.
type Message struct {
	ID     string `json:"id"`
	Time   Time   `json:"time"` // when the server took it
	Topic  string `json:"topic,omitempty"`
	Sender string `json:"sender,omitempty"` // the publisher's user name, or its client id if there is none
	Client string `json:"client,omitempty"` // the publisher's client id
	QoS    int    `json:"qos,omitempty"`    // as published
	Retain bool   `json:"retain,omitempty"` // as published

	Payload       string `json:"payload,omitempty"`
	PayloadBase64 []byte `json:"payload_base64,omitempty"`
	PayloadFormat *int   `json:"payload_format,omitempty"` // the indicator of MQTT 5: 0 bytes, 1 UTF-8; nil if the publisher gave none

	ContentType     string      `json:"content_type,omitempty"`
	ResponseTopic   string      `json:"response_topic,omitempty"`
	CorrelationData []byte      `json:"correlation_base64,omitempty"`
	Properties      [][2]string `json:"properties,omitempty"` // user properties, in the publisher's order
	Expires         Time        `json:"expires,omitempty"`    // it is not delivered any more from then on; 0 for never

	// Deleted tells that the content was taken away.
	Deleted bool `json:"deleted,omitempty"`

	// Truncated tells that the message is larger than the asker takes, so that
	// the payload, and other fields if that was not enough, were left out.
	Truncated    bool `json:"truncated,omitempty"`
	PayloadBytes int  `json:"payload_bytes,omitempty"` // the size of the payload that was left out
}

// Content returns the payload, text or not. It is not to be changed.
func (m *Message) Content() []byte {
	if m.PayloadBase64 != nil {
		return m.PayloadBase64
	}
	return []byte(m.Payload)
}

func messageOf(e *inbox.Envelope) Message {
	m := Message{
		ID:      e.ID.String(),
		Time:    Time(e.Time),
		Topic:   e.Topic,
		Sender:  e.Sender(),
		Deleted: e.Deleted,
	}
	if e.Deleted {
		return m
	}
	m.Client = e.Client
	m.QoS = int(e.QoS)
	m.Retain = e.Retain
	m.ContentType = e.ContentType
	m.ResponseTopic = e.ResponseTopic
	m.CorrelationData = e.CorrelationData
	m.Expires = Time(e.Expiry)
	if utf8.Valid(e.Payload) {
		m.Payload = string(e.Payload)
	} else {
		m.PayloadBase64 = e.Payload
	}
	if e.PayloadFormat != inbox.FormatAbsent {
		indicator := int(e.PayloadFormat - inbox.FormatBytes)
		m.PayloadFormat = &indicator
	}
	for _, p := range e.UserProperties {
		m.Properties = append(m.Properties, [2]string{p.Key, p.Value})
	}
	return m
}
