package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/hooks"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Publish stores a message for every receiver whose subscriptions match the
// topic, and returns once it is on stable storage; from then on it is delivered
// like any other. It is published with QoS 1, unless a set function changes
// that or other fields of the envelope that the publisher decides: the content
// type, the user properties, the expiry, or that it is retained. The payload is
// the broker's from then on. What a client could not publish is refused: a topic
// that begins with $, texts of more than 65,535 bytes or with control characters,
// and a packet of more than MaxPacketSize.
//
// An error other than [inbox.ErrUncertain] and the context's means that the
// message was not stored. Publish waits for one sync of the disk, which all
// concurrent calls share.
func (b *Broker) Publish(ctx context.Context, topic string, payload []byte, set ...func(*inbox.Envelope)) (inbox.Receipt, error) {
	e := &inbox.Envelope{Time: time.Now().UnixMilli(), Topic: topic, Payload: payload, QoS: 1}
	for _, f := range set {
		f(e)
	}
	if err := hooks.CheckMessage(e, b.options.MaxPacketSize); err != nil {
		return inbox.Receipt{}, fmt.Errorf("publish: %w", err)
	}

	receipt, err := b.append(ctx, e)
	if err != nil {
		return receipt, fmt.Errorf("publish: %w", err)
	}
	return receipt, nil
}

// append stores a message that was checked, and waits until it is stored.
func (b *Broker) append(ctx context.Context, e *inbox.Envelope) (inbox.Receipt, error) {
	type outcome struct {
		receipt inbox.Receipt
		err     error
	}
	stored := make(chan outcome, 1) // the store must never wait for us
	b.store.Append(ctx, e, func(r inbox.Receipt, err error) { stored <- outcome{r, err} })
	select {
	case o := <-stored:
		return o.receipt, o.err
	case <-ctx.Done():
		return inbox.Receipt{}, fmt.Errorf("wait until it is stored: %w", ctx.Err())
	}
}
