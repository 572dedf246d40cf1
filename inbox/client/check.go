package client

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/eclipse/paho.golang/paho"
)

// maxText is how long a text of MQTT can be, in bytes.
const maxText = 1<<16 - 1

// maxLevels is how many levels of a topic the broker takes.
const maxLevels = 200

// check returns what keeps a message from being sent: most brokers end the connection over
// these, and a message that waits for its acknowledgement would do so again and again.
// The error wraps ErrInvalid.
func check(p *paho.Publish) error {
	switch {
	case p.QoS != 1 && p.QoS != 2:
		return fmt.Errorf("%w: QoS %d is not acknowledged", ErrInvalid, p.QoS)
	case p.Topic == "", strings.HasPrefix(p.Topic, "$"), strings.ContainsAny(p.Topic, "#+"), strings.Count(p.Topic, "/") >= maxLevels:
		return fmt.Errorf("%w: topic %q", ErrInvalid, p.Topic)
	case p.Properties == nil:
		return checkText("topic", p.Topic)
	case p.Properties.TopicAlias != nil:
		return fmt.Errorf("%w: a topic alias ends with its connection", ErrInvalid)
	case p.Properties.SubscriptionIdentifier != nil:
		return fmt.Errorf("%w: only a broker sends subscription identifiers", ErrInvalid)
	case len(p.Properties.CorrelationData) > maxText:
		return fmt.Errorf("%w: correlation data of %d bytes", ErrInvalid, len(p.Properties.CorrelationData))
	case strings.ContainsAny(p.Properties.ResponseTopic, "#+"):
		return fmt.Errorf("%w: response topic %q", ErrInvalid, p.Properties.ResponseTopic)
	}
	texts := []struct{ what, text string }{
		{"topic", p.Topic}, {"content type", p.Properties.ContentType}, {"response topic", p.Properties.ResponseTopic},
	}
	for _, u := range p.Properties.User {
		texts = append(texts, struct{ what, text string }{"user property", u.Key}, struct{ what, text string }{"user property", u.Value})
	}
	for _, t := range texts {
		if err := checkText(t.what, t.text); err != nil {
			return err
		}
	}
	return nil
}

func checkText(what, text string) error {
	if len(text) > maxText {
		return fmt.Errorf("%w: %s of %d bytes", ErrInvalid, what, len(text))
	}
	for i, r := range text {
		if r == utf8.RuneError && !strings.HasPrefix(text[i:], "\uFFFD") || // no UTF-8
			r < ' ' || 0x7F <= r && r < 0xA0 || // control characters
			0xFDD0 <= r && r < 0xFDF0 || r&0xFFFE == 0xFFFE { // noncharacters
			return fmt.Errorf("%w: %s %q", ErrInvalid, what, text)
		}
	}
	return nil
}
