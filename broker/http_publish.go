package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/hooks"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// PublishRequest is the body of POST /v1/messages: one message. Its fields are
// those of [pull.Message], but for the last two.
type PublishRequest struct {
	Topic string `json:"topic"`

	Payload       string `json:"payload,omitempty"`
	PayloadBase64 []byte `json:"payload_base64,omitempty"` // in the place of Payload
	PayloadFormat *int   `json:"payload_format,omitempty"` // 0 bytes, 1 UTF-8

	QoS             *int       `json:"qos,omitempty"` // 0, 1 or 2; nil for 1
	Retain          bool       `json:"retain,omitempty"`
	ContentType     string     `json:"content_type,omitempty"`
	ResponseTopic   string     `json:"response_topic,omitempty"`
	CorrelationData []byte     `json:"correlation_base64,omitempty"`
	Properties      [][]string `json:"properties,omitempty"` // pairs of a name and a value

	ExpiresIn *int64 `json:"expires_in,omitempty"` // seconds, 1 to 4,294,967,295; nil for never
	MsgID     string `json:"msg_id,omitempty"`     // see [inbox.PropertyMessageID]
}

// PublishAnswer tells that a message is stored.
type PublishAnswer struct {
	ID        string `json:"id,omitempty"` // left out if it is not known any more of a duplicate
	Duplicate bool   `json:"duplicate"`    // it had been stored before
}

// publish stores one message, and answers when it is on stable storage.
func (a *api) publish(w http.ResponseWriter, r *http.Request, c Client) (reply, error) {
	if err := noQuery(r, parameterClient); err != nil {
		return reply{}, err
	}
	body, err := readBody(w, r, int64(2*a.broker.options.MaxPacketSize+64<<10)) // base64 takes a third more
	if err != nil {
		return reply{}, err
	}
	e, err := readMessage(body, c, time.Now())
	if err != nil {
		return reply{}, err
	}
	switch err := hooks.CheckMessage(e, a.broker.options.MaxPacketSize); {
	case errors.Is(err, inbox.ErrTooLarge):
		return reply{}, &pull.Error{Code: pull.CodeTooLarge, Message: err.Error()}
	case err != nil:
		return reply{}, badRequest("%v", err)
	case a.access != nil && !a.access.Publish(c, e.Topic):
		return reply{}, &pull.Error{Code: pull.CodeForbidden, Message: "you may not publish to this topic"}
	}
	var receipt inbox.Receipt
	err = a.work(r, func(ctx context.Context) (err error) {
		receipt, err = a.broker.append(ctx, e)
		return err
	})
	if err != nil {
		return reply{}, err
	}
	answer := PublishAnswer{Duplicate: receipt.Duplicate}
	if receipt.ID != (inbox.MessageID{}) {
		answer.ID = receipt.ID.String()
	}
	return encode(pull.TypeJSON, answer)
}

// readMessage makes an envelope of a request. What MQTT asks of it is not checked.
func readMessage(body []byte, c Client, now time.Time) (*inbox.Envelope, error) {
	if !pull.ValidText(body) {
		return nil, badRequest("the message is not UTF-8, or has half of a surrogate pair; bytes go into payload_base64")
	}
	var p PublishRequest
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return nil, badRequest("the message is not as it should be: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, badRequest("the request goes on behind the message")
	}
	e := &inbox.Envelope{
		Time: now.UnixMilli(), Topic: p.Topic, QoS: 1, Retain: p.Retain, Client: c.ID, User: c.User,
		ContentType: p.ContentType, ResponseTopic: p.ResponseTopic, CorrelationData: p.CorrelationData,
		Payload: []byte(p.Payload),
	}
	if p.PayloadBase64 != nil {
		e.Payload = p.PayloadBase64
	}
	if p.QoS != nil {
		e.QoS = byte(*p.QoS)
	}
	if p.PayloadFormat != nil {
		e.PayloadFormat = inbox.FormatBytes + inbox.PayloadFormat(*p.PayloadFormat)
	}
	if p.ExpiresIn != nil {
		e.Expiry = now.Add(time.Duration(*p.ExpiresIn) * time.Second).UnixMilli()
	}
	if p.MsgID != "" {
		e.UserProperties = append(e.UserProperties, inbox.UserProperty{Key: inbox.PropertyMessageID, Value: p.MsgID})
	}
	for _, pair := range p.Properties {
		if len(pair) != 2 {
			return nil, badRequest("properties must be pairs of a name and a value")
		}
		e.UserProperties = append(e.UserProperties, inbox.UserProperty{Key: pair[0], Value: pair[1]})
	}
	return e, p.check(c)
}

// check finds what an envelope cannot say.
func (p *PublishRequest) check(c Client) error {
	named := p.MsgID != ""
	for _, pair := range p.Properties {
		if pair[0] != inbox.PropertyMessageID {
			continue
		}
		if p.MsgID != "" {
			return badRequest("the message has a msg_id and a property %s; send one of them", inbox.PropertyMessageID)
		}
		named = true
	}
	switch {
	case p.Payload != "" && p.PayloadBase64 != nil:
		return badRequest("the message has a payload and a payload_base64; send one of them")
	case p.QoS != nil && (*p.QoS < 0 || *p.QoS > 2):
		return badRequest("qos must be 0, 1 or 2")
	case p.PayloadFormat != nil && *p.PayloadFormat != 0 && *p.PayloadFormat != 1:
		return badRequest("payload_format must be 0 or 1")
	case p.ExpiresIn != nil && (*p.ExpiresIn < 1 || *p.ExpiresIn > math.MaxUint32):
		return badRequest("expires_in must be 1 to 4294967295 seconds")
	case named && c.ID == "":
		return badRequest("messages are named by their clients; say as which one you publish, as in /v1/messages?client=phone")
	}
	return nil
}
