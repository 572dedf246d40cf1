package broker

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Publish stores a message for every receiver whose subscriptions match the
// topic, and returns once it is on stable storage; from then on it is delivered
// like any other. It is published with QoS 1, unless a set function changes
// that or other fields of the envelope that the publisher decides: the content
// type, the user properties, the expiry, or that it is retained. The payload is
// the broker's from then on.
//
// An error other than [inbox.ErrUncertain] and the context's means that the
// message was not stored. Publish waits for one sync of the disk, which all
// concurrent calls share.
func (b *Broker) Publish(ctx context.Context, topic string, payload []byte, set ...func(*inbox.Envelope)) (inbox.Receipt, error) {
	e := &inbox.Envelope{Time: time.Now().UnixMilli(), Topic: topic, Payload: payload, QoS: 1}
	for _, f := range set {
		f(e)
	}
	if err := validateMessage(e, b.options.MaxPacketSize); err != nil {
		return inbox.Receipt{}, fmt.Errorf("publish: %w", err)
	}

	type outcome struct {
		receipt inbox.Receipt
		err     error
	}
	stored := make(chan outcome, 1) // the store must never wait for us
	b.store.Append(ctx, e, func(r inbox.Receipt, err error) { stored <- outcome{r, err} })
	select {
	case o := <-stored:
		if o.err != nil {
			return o.receipt, fmt.Errorf("publish: %w", o.err)
		}
		return o.receipt, nil
	case <-ctx.Done():
		return inbox.Receipt{}, fmt.Errorf("publish: wait until it is stored: %w", ctx.Err())
	}
}

// validateMessage checks what the MQTT server checks of a client's message.
func validateMessage(e *inbox.Envelope, maxSize int) error {
	switch {
	case e.Topic == "" || len(e.Topic) > 65535 || !utf8.ValidString(e.Topic):
		return fmt.Errorf("topic must be 1 to 65535 bytes of UTF-8") // [MQTT-4.7.3-1], [MQTT-4.7.3-3]
	case strings.ContainsAny(e.Topic, "#+\x00"):
		return fmt.Errorf("topic %q must not contain #, + or a null character", e.Topic) // [MQTT-3.3.2-2], [MQTT-4.7.3-2]
	case e.QoS > 2:
		return fmt.Errorf("QoS %d must be 0, 1 or 2", e.QoS)
	case len(e.Topic)+len(e.Payload) > maxSize:
		return fmt.Errorf("%w: %d bytes, limit %d", inbox.ErrTooLarge, len(e.Topic)+len(e.Payload), maxSize)
	}
	return nil
}
