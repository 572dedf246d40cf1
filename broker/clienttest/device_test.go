package clienttest

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/paho"

	"github.com/mqtt-inbox/mqtt-inbox/broker/brokertest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/client"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// device is a Go program with an inbox, over autopaho.
type device struct {
	t          *testing.T
	connection *autopaho.ConnectionManager
	inbox      *client.Client
}

// deviceOptions say how a device connects.
type deviceOptions struct {
	id, user   string                // user may be empty
	subscribe  string                // a filter, at QoS 1; none if empty
	mode       string                // pull or push, which it is if empty
	received   func(p *paho.Publish) // what comes by itself; nil for nothing
	properties []paho.UserProperty   // more of CONNECT
}

// connectDevice connects a device, which comes back by itself until the test ends or it
// is disconnected.
func connectDevice(t *testing.T, b *brokertest.Broker, o deviceOptions) *device {
	t.Helper()
	address, err := url.Parse("mqtt://" + b.Address)
	if err != nil {
		t.Fatal(err)
	}
	d := &device{t: t, inbox: client.New(client.Options{})}
	config := autopaho.ClientConfig{
		ServerUrls:            []*url.URL{address},
		KeepAlive:             30,
		SessionExpiryInterval: sessionExpiry,
		ReconnectBackoff:      autopaho.NewConstantBackoff(50 * time.Millisecond),
		ConnectUsername:       o.user,
		ClientConfig: paho.ClientConfig{
			ClientID: o.id,
			OnPublishReceived: []func(paho.PublishReceived) (bool, error){
				d.inbox.Received,
				func(p paho.PublishReceived) (bool, error) {
					if !p.AlreadyHandled && o.received != nil {
						o.received(p.Packet)
					}
					return true, nil
				},
			},
		},
		ConnectPacketBuilder: func(c *paho.Connect, _ *url.URL) (*paho.Connect, error) {
			c.Properties.RequestProblemInfo = true // or the ids of published messages are not told
			c.Properties.User.Add(client.PropertyMetadata, "on")
			if o.mode != "" {
				c.Properties.User.Add(client.PropertyMode, o.mode)
			}
			c.Properties.User = append(c.Properties.User, o.properties...)
			return c, nil
		},
	}
	d.connection, err = autopaho.NewConnection(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.disconnect)
	d.inbox.Use(d.connection)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	if err := d.connection.AwaitConnection(ctx); err != nil {
		t.Fatal(err)
	}
	if o.subscribe != "" {
		if _, err := d.connection.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: o.subscribe, QoS: 1}}}); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// disconnect takes leave and ends everything. It may be called again.
func (d *device) disconnect() {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	if err := d.connection.Disconnect(ctx); err != nil {
		d.t.Errorf("disconnect: %v", err)
	}
}

// publish publishes payloads and returns the ids that they got.
func (d *device) publish(topic string, payloads ...string) (ids []string) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), deadline)
	defer cancel()
	for _, payload := range payloads {
		receipt, err := d.inbox.Publish(ctx, &paho.Publish{Topic: topic, QoS: 1, Payload: []byte(payload)})
		if err != nil {
			d.t.Fatal(err)
		}
		ids = append(ids, receipt.ID)
	}
	return ids
}

// unread returns what is unread, without acknowledging it.
func (d *device) unread() (payloads []string) {
	d.t.Helper()
	for m, err := range d.inbox.Messages(d.t.Context(), pull.PullRequest{Ack: new(false)}) {
		if err != nil {
			d.t.Fatal(err)
		}
		payloads = append(payloads, string(m.Content()))
	}
	return payloads
}

// away makes a session that is subscribed, and leaves.
func away(t *testing.T, b *brokertest.Broker, id, filter string) {
	t.Helper()
	connectDevice(t, b, deviceOptions{id: id, subscribe: filter}).disconnect()
}

// numbered returns the numbers from one to another, with what stands before them.
func numbered(before string, from, to int) (all []string) {
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprint(before, i))
	}
	return all
}

// equal fails the test if two lists differ, and shows where they begin to.
func equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	t.Errorf("%s: %d, want %d; from number %d on %q, want %q", what, len(got), len(want), i, got[i:min(len(got), i+5)], want[i:min(len(want), i+5)])
}
