package client_test

import (
	"context"
	"fmt"
	"log"
	"net/url"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/paho"

	"github.com/mqtt-inbox/mqtt-inbox/inbox/client"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// A chat app connects, and shows first how much is unread. When the connection was lost and
// is back (OnConnectionUp), it asks again: what was stored meanwhile waits, too.
func Example() {
	ctx := context.Background()
	broker, err := url.Parse("mqtt://localhost:1883")
	if err != nil {
		log.Fatal(err)
	}
	inbox := client.New(client.Options{})
	config := autopaho.ClientConfig{
		ServerUrls:            []*url.URL{broker},
		KeepAlive:             30,
		SessionExpiryInterval: 30 * 24 * 3600, // seconds
		ClientConfig: paho.ClientConfig{
			ClientID: "alice-phone",
			OnPublishReceived: []func(paho.PublishReceived) (bool, error){
				inbox.Received, // before what takes messages
				func(p paho.PublishReceived) (bool, error) {
					if !p.AlreadyHandled {
						fmt.Println("just now:", string(p.Packet.Payload))
					}
					return true, nil
				},
			},
		},
		ConnectPacketBuilder: func(c *paho.Connect, _ *url.URL) (*paho.Connect, error) {
			c.Properties.RequestProblemInfo = true                    // publishers are told ids, and reasons
			c.Properties.User.Add(client.PropertyMode, pull.ModePull) // what waits is asked for
			c.Properties.User.Add(client.PropertyMetadata, "on")      // live messages have ids
			return c, nil
		},
	}
	connection, err := autopaho.NewConnection(ctx, config)
	if err != nil {
		log.Fatal(err)
	}
	inbox.Use(connection)
	if err := connection.AwaitConnection(ctx); err != nil {
		log.Fatal(err)
	}
	_, err = connection.Subscribe(ctx, &paho.Subscribe{
		Subscriptions: []paho.SubscribeOptions{{Topic: "chat/alice/#", QoS: 1}},
	})
	if err != nil {
		log.Fatal(err)
	}

	unread, err := inbox.Summary(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range unread.Senders {
		fmt.Println(s.Sender, s.Messages)
	}
}

// Messages are handled once, though a page may come again.
func ExampleClient_Pages() {
	ctx := context.Background()
	var inbox *client.Client // see the example of the package

	seen, err := client.OpenSeen("seen", client.SeenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer seen.Close()
	for page, err := range inbox.Pages(ctx, pull.PullRequest{Sender: "bob", Limit: 50}) {
		if err != nil {
			log.Fatal(err) // the next walk begins with the page at which this one has ended
		}
		var ids []string
		for _, m := range page.Messages {
			if !seen.Has(m.ID) {
				fmt.Println(m.Time.Std(), m.Sender, string(m.Content())) // or store it, with a sync
			}
			ids = append(ids, m.ID)
		}
		if err := seen.Add(ids...); err != nil {
			log.Fatal(err)
		}
		// To go on acknowledges the page.
	}
}

// The last hundred messages of a conversation, the newest first.
func ExampleClient_History() {
	ctx := context.Background()
	var inbox *client.Client // see the example of the package

	n := 0
	for m, err := range inbox.History(ctx, pull.HistoryRequest{Topic: "chat/alice/bob"}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(m.Time.Std(), m.Sender, string(m.Content()))
		if n++; n == 100 {
			break
		}
	}
}

// Everything of a conversation is marked as read.
func ExampleClient_Ack() {
	var inbox *client.Client // see the example of the package

	n, err := inbox.Ack(context.Background(), pull.AckRequest{Topic: "chat/alice/bob"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(n, "were unread")
}

// What is added is sent, whenever there is a connection, and whatever happens to the
// program meanwhile.
func ExampleOutbox() {
	ctx := context.Background()
	var connection *autopaho.ConnectionManager // see the example of the package

	outbox, err := client.OpenOutbox("outbox", client.OutboxOptions{
		Lost: func(l client.Lost) { fmt.Println("will not be sent:", l.Name, l.Err) },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer outbox.Close()
	go func() {
		if err := outbox.Run(ctx, connection); err != nil {
			fmt.Println(err)
		}
	}()
	name, err := outbox.Add(&paho.Publish{Topic: "chat/bob/alice", QoS: 1, Payload: []byte("hello")})
	if err != nil {
		log.Fatal(err) // it will not be sent; client.ErrFull tells that too much waits
	}
	fmt.Println("will be sent as", name)
}

// A message that comes again is shown once. Paho is told to leave acknowledgements to the
// program.
func ExampleSeen_First() {
	seen, err := client.OpenSeen("seen", client.SeenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer seen.Close()
	received := func(p paho.PublishReceived) (bool, error) {
		first, err := seen.First(client.MetadataOf(p.Packet).ID)
		if err != nil {
			return false, err // not acknowledged: it comes again
		}
		if first {
			fmt.Println(string(p.Packet.Payload))
		}
		return true, p.Client.Ack(p.Packet)
	}
	_ = paho.ClientConfig{
		EnableManualAcknowledgment: true,
		OnPublishReceived:          []func(paho.PublishReceived) (bool, error){received},
	}
}
