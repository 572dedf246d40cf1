package clienttest

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/autopaho/queue/memory"
	"github.com/eclipse/paho.golang/paho"
)

// autopahoOver is Paho Go for MQTT 5, which connects again by itself.
func autopahoOver(scheme string) func(context.Context, visit) error {
	return func(ctx context.Context, v visit) error {
		address, err := url.Parse(v.url(scheme))
		if err != nil {
			return fmt.Errorf("parse the address: %w", err)
		}
		outbox := memory.New()
		c, err := autopaho.NewConnection(ctx, autopaho.ClientConfig{
			ServerUrls:            []*url.URL{address},
			Queue:                 outbox,
			KeepAlive:             30,
			SessionExpiryInterval: sessionExpiry,
			ReconnectBackoff:      autopaho.NewConstantBackoff(100 * time.Millisecond),
			ClientConfig: paho.ClientConfig{
				ClientID: v.client,
				OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(p paho.PublishReceived) (bool, error) {
					v.received.add(message{p.Packet.Topic, p.Packet.QoS, string(p.Packet.Payload)})
					return true, nil
				}},
			},
		})
		if err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		if err := c.AwaitConnection(ctx); err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		if v.filter != "" {
			granted, err := c.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: v.filter, QoS: v.qos}}})
			if err != nil {
				return fmt.Errorf("subscribe: %w", err)
			}
			if granted.Reasons[0] != v.qos {
				return fmt.Errorf("granted %#x, want %d", granted.Reasons[0], v.qos)
			}
		}
		if err := publishQueued(ctx, c, v); err != nil {
			return err
		}
		if err := v.stay(ctx); err != nil {
			return err
		}
		select {
		case <-outbox.WaitForEmpty():
		case <-ctx.Done():
			return fmt.Errorf("send what is queued: %w", ctx.Err())
		}
		if _, err := c.Publish(ctx, &paho.Publish{Topic: "left/" + v.client, QoS: 2}); err != nil { // acknowledged after those before
			return fmt.Errorf("publish at last: %w", err)
		}
		if _, err := c.Publish(ctx, &paho.Publish{Topic: request}); err != nil {
			return fmt.Errorf("ask at last: %w", err)
		}
		if err := v.awaitAnswer(ctx); err != nil {
			return err
		}
		return c.Disconnect(ctx)
	}
}

// publishQueued publishes by way of the queue, which sends in the order of calls,
// whether there is a connection or not.
func publishQueued(ctx context.Context, c *autopaho.ConnectionManager, v visit) error {
	for _, payload := range v.payloads {
		p := &paho.Publish{Topic: v.topic, QoS: v.qos, Payload: payload}
		if err := c.PublishViaQueue(ctx, &autopaho.QueuePublish{Publish: p}); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		if err := wait(ctx, v.pause); err != nil {
			return err
		}
	}
	return nil
}
