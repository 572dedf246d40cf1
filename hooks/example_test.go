package hooks_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/listeners"

	"github.com/mqtt-inbox/mqtt-inbox/hooks"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

// A mochi server with inboxes.
func Example() {
	dir, err := os.MkdirTemp("", "inbox")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	quiet := slog.New(slog.DiscardHandler)

	// The store, the hook, and the server with its own access rules.
	store, err := badger.Open(badger.Options{Dir: dir, Log: quiet})
	if err != nil {
		panic(err)
	}
	hook, err := hooks.New(store, hooks.Options{Log: quiet})
	if err != nil {
		panic(err)
	}
	server := mqtt.New(&mqtt.Options{InlineClient: true, Logger: quiet})
	server.Options.Capabilities.MaximumPacketSize = 512 << 10 // unlimited otherwise
	if err := server.AddHook(new(auth.AllowHook), nil); err != nil {
		panic(err)
	}
	if err := hook.Attach(server); err != nil {
		panic(err)
	}

	// Each listener goes through the hook.
	tcp := listeners.NewTCP(listeners.Config{ID: "tcp", Address: "127.0.0.1:0"}) // any free port
	if err := server.AddListener(hook.Listener(tcp)); err != nil {
		panic(err)
	}
	if err := server.Serve(); err != nil { // returns when clients can come
		panic(err)
	}

	// Clients connect to tcp.Address(). The program can take part, too.
	messages := make(chan string)
	stop, err := hook.Subscribe(context.Background(), "chat/#", func(e inbox.Entry) {
		messages <- e.Envelope.Topic + ": " + string(e.Envelope.Payload)
	})
	if err != nil {
		panic(err)
	}
	if err := server.Publish("chat/alice", []byte("hello"), false, 1); err != nil {
		panic(err)
	}
	fmt.Println(<-messages)
	stop()

	// The end, in this order: no client is left after Close, nothing that uses
	// the store after Wait.
	if err := server.Close(); err != nil {
		panic(err)
	}
	hook.Wait()
	if err := store.Close(); err != nil {
		panic(err)
	}
	// Output: chat/alice: hello
}
