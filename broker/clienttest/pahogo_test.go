package clienttest

import (
	"context"
	"fmt"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
)

// goodbye is how long Paho Go may take to disconnect, in milliseconds.
const goodbye = 1000

// pahoGo is Paho Go for MQTT 3.1.1.
func pahoGo(ctx context.Context, v visit) error {
	c := mqtt.NewClient(mqtt.NewClientOptions().
		AddBroker(v.url("tcp")).
		SetClientID(v.client).
		SetProtocolVersion(4).
		SetCleanSession(false).
		SetMaxReconnectInterval(100 * time.Millisecond).
		SetDefaultPublishHandler(func(_ mqtt.Client, m mqtt.Message) {
			v.received.add(message{m.Topic(), m.Qos(), string(m.Payload())})
		}))
	if err := await(ctx, c.Connect()); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer c.Disconnect(goodbye)
	if v.filter != "" {
		token := c.Subscribe(v.filter, v.qos, nil)
		if err := await(ctx, token); err != nil {
			return fmt.Errorf("subscribe: %w", err)
		}
		if granted := token.(*mqtt.SubscribeToken).Result()[v.filter]; granted != v.qos {
			return fmt.Errorf("granted %#x, want %d", granted, v.qos)
		}
	}
	var sent []mqtt.Token
	for _, payload := range v.payloads {
		sent = append(sent, c.Publish(v.topic, v.qos, false, payload))
		if err := wait(ctx, v.pause); err != nil {
			return err
		}
	}
	for _, token := range sent {
		if err := await(ctx, token); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
	}
	if err := v.stay(ctx); err != nil {
		return err
	}
	if err := await(ctx, c.Publish(request, 0, false, "")); err != nil {
		return fmt.Errorf("ask at last: %w", err)
	}
	return v.awaitAnswer(ctx)
}

// await waits for an operation.
func await(ctx context.Context, token mqtt.Token) error {
	select {
	case <-token.Done():
		return token.Error()
	case <-ctx.Done():
		return ctx.Err()
	}
}
