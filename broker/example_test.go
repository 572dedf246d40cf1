package broker_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/mqtt-inbox/mqtt-inbox/broker"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/memory"
)

// A program that has a broker inside, and publishes through it.
func Example() {
	dir, err := os.MkdirTemp("", "inbox")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	b, err := broker.New(broker.Options{
		TCP: []string{"127.0.0.1:0"}, // any free port
		Dir: dir,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- b.Serve(ctx) }()

	// Clients connect to b.Addresses()[0].

	stop()
	fmt.Println("served:", <-served)
	// Output: served: <nil>
}

// newBroker returns a broker that stores nothing on disk.
func newBroker() *broker.Broker {
	b, err := broker.New(broker.Options{
		TCP:   []string{"127.0.0.1:0"},
		Store: memory.New(memory.Options{}),
		Log:   slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	return b
}

func ExampleBroker_Publish() {
	b := newBroker()
	defer b.Close()

	receipt, err := b.Publish(context.Background(), "chat/alice", []byte("hello"),
		func(e *inbox.Envelope) { e.ContentType = "text/plain" })
	if err != nil {
		panic(err)
	}
	fmt.Println("stored for", receipt.Matched, "receivers")
	// Output: stored for 0 receivers
}

func ExampleBroker_Subscribe() {
	b := newBroker()
	defer b.Close()

	messages := make(chan string)
	stop, err := b.Subscribe(context.Background(), "chat/#", func(e inbox.Entry) {
		messages <- e.Envelope.Topic + ": " + string(e.Envelope.Payload)
	})
	if err != nil {
		panic(err)
	}
	defer stop()

	for _, text := range []string{"hello", "are you there?"} {
		if _, err := b.Publish(context.Background(), "chat/alice", []byte(text)); err != nil {
			panic(err)
		}
		fmt.Println(<-messages)
	}
	// Output:
	// chat/alice: hello
	// chat/alice: are you there?
}
