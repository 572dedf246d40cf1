package hooks

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// CheckMessage checks of a message that a program appends to the store what the
// server checks of one that a client publishes, and returns what is wrong with
// it. maxSize is the largest PUBLISH packet that it may make, in bytes: the error
// wraps [inbox.ErrTooLarge] if it is larger.
//
// Cost: one pass over the texts; the payload is not looked at.
func CheckMessage(e *inbox.Envelope, maxSize int) error {
	switch {
	case e.QoS > 2:
		return fmt.Errorf("QoS %d must be 0, 1 or 2", e.QoS) // [MQTT-3.3.1-4]
	case e.PayloadFormat > inbox.FormatUTF8:
		return fmt.Errorf("payload format %d is unknown", e.PayloadFormat)
	case e.Expiry < 0:
		return fmt.Errorf("expiry %d must be a time in Unix milliseconds, or 0 for never", e.Expiry)
	case len(e.CorrelationData) > maxText:
		return fmt.Errorf("correlation data has %d bytes, the most is %d", len(e.CorrelationData), maxText)
	}
	if err := errors.Join(
		CheckText("topic", e.Topic),
		CheckText("content type", e.ContentType),
		CheckText("response topic", e.ResponseTopic),
		CheckText("client id", e.Client),
		CheckText("user name", e.User),
	); err != nil {
		return err
	}
	for _, u := range e.UserProperties {
		if err := errors.Join(CheckText("name of a user property", u.Key), CheckText("user property", u.Value)); err != nil {
			return err
		}
	}
	switch {
	case !validTopic(e.Topic):
		return fmt.Errorf("topic %q must not be empty, begin with $ or have more than %d levels", e.Topic, maxLevels) // [MQTT-4.7.3-1]
	case strings.ContainsAny(e.Topic, "#+"), strings.ContainsAny(e.ResponseTopic, "#+"):
		return errors.New("a topic must not contain # or +") // [MQTT-3.3.2-2] [MQTT-3.3.2-14]
	}

	p := publication{Envelope: e, grant: inbox.Grant{QoS: e.QoS}}
	if size, _, _ := p.size(true); size > maxSize {
		return fmt.Errorf("%w: %d bytes, limit %d", inbox.ErrTooLarge, size, maxSize)
	}
	return nil
}

// CheckText returns what is wrong with a text of MQTT, which may be empty: it is
// UTF-8 of at most 65,535 bytes without control characters. name is what the error
// calls it.
func CheckText(name, text string) error {
	switch {
	case len(text) > maxText:
		return fmt.Errorf("%s has %d bytes, the most is %d", name, len(text), maxText)
	case !validText([]byte(text)):
		return fmt.Errorf("%s must be UTF-8 without control characters", name) // [MQTT-1.5.4-1] [MQTT-1.5.4-2]
	}
	return nil
}
