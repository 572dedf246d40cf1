package client

import (
	"context"
	crand "crypto/rand"
	"fmt"
	"slices"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
)

// Publisher is what this package needs of a connection. *paho.Client has it, and
// *autopaho.ConnectionManager, which also connects again.
//
// If it has AwaitConnection(context.Context) error or Done() <-chan struct{}, as these
// have, they are used: to wait for the connection, and to give up when it is over.
type Publisher interface {
	Publish(ctx context.Context, p *paho.Publish) (*paho.PublishResponse, error)
}

// Receipt is what a publisher knows of a message that was acknowledged.
type Receipt struct {
	Name string // the one under which it was sent, see PropertyName

	// ID is the one that the broker gave it, see [Message]. Empty if it did not tell, as of
	// QoS 2; it tells only who lets it, by RequestProblemInfo of [paho.ConnectProperties],
	// which Paho leaves out of its own accord.
	ID string
}

// RefusedError is a reason of the broker for not taking a message.
type RefusedError struct {
	Code   byte   // of PUBACK or PUBREC, 0x80 or more
	Reason string // the broker's words; mostly empty
}

func (e *RefusedError) Error() string {
	text := fmt.Sprintf("refused with code %#02x", e.Code)
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	return text
}

// Final reports whether the message will be refused whenever it is sent. Others may
// be taken later: when the broker's disk has room again, for example.
func (e *RefusedError) Final() bool {
	switch e.Code {
	case packets.PubackImplementationSpecificError, // larger than the store takes
		packets.PubackNotAuthorized,
		packets.PubackTopicNameInvalid,
		packets.PubackPayloadFormatInvalid:
		return true
	}
	return false
}

// Publish sends a message of QoS 1 or 2 under a name, see [Outbox.Add], and returns when
// the broker has acknowledged it. What fails is tried again under the same name, with
// growing pauses, until ctx ends or the connection is over. Then the message may have been
// stored or not; to send it once more under the receipt's name does no harm. For
// what must survive the program use an [Outbox].
//
// Errors: ErrInvalid, ErrNotConnected, ErrConnectionOver, a RefusedError that is final, or
// the context's.
func (c *Client) Publish(ctx context.Context, p *paho.Publish) (Receipt, error) {
	q, name := named(p)
	conn, err := c.connection()
	if err == nil {
		err = check(q)
	}
	if err != nil {
		return Receipt{}, fmt.Errorf("publish: %w", err)
	}
	receipt := Receipt{Name: name}
	err = insist(ctx, conn, c.log, func() error {
		receipt.ID, err = publish(ctx, conn, q)
		return err
	})
	if err != nil {
		return receipt, fmt.Errorf("publish: %w", err)
	}
	return receipt, nil
}

// named returns a copy of a message that has a name, and the name: its own, or else a
// new one.
func named(p *paho.Publish) (*paho.Publish, string) {
	q := *p
	properties := paho.PublishProperties{}
	if p.Properties != nil {
		properties = *p.Properties
	}
	q.Properties = &properties
	name := properties.User.Get(PropertyName)
	if name == "" {
		name = crand.Text()
		properties.User = append(slices.Clip(properties.User), paho.UserProperty{Key: PropertyName, Value: name})
	}
	return &q, name
}

// publish sends a named message once, and returns when the broker has acknowledged it.
func publish(ctx context.Context, conn Publisher, p *paho.Publish) (id string, err error) {
	q := *p // hooks of Paho may change it
	r, err := conn.Publish(ctx, &q)
	if r == nil {
		return "", err
	}
	var properties paho.PublishResponseProperties
	if r.Properties != nil {
		properties = *r.Properties
	}
	if r.ReasonCode >= 0x80 { // Paho returns an error of QoS 1 alone
		return "", &RefusedError{Code: r.ReasonCode, Reason: properties.ReasonString}
	}
	return properties.User.Get(PropertyID), err
}
