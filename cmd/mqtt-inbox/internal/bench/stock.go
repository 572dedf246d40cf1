package bench

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"

	badgerdb "github.com/dgraph-io/badger/v4"
	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/hooks/storage/badger"
	"github.com/mochi-mqtt/server/v2/listeners"
	"github.com/mochi-mqtt/server/v2/packets"
)

// ServeStock runs the mochi broker as it comes, until ctx ends: the baseline
// that this broker is compared with. With a directory it stores with mochi's
// own Badger hook, each write synced.
func ServeStock(ctx context.Context, address, dir string) error {
	quiet := slog.New(slog.DiscardHandler)
	server := mqtt.New(&mqtt.Options{Logger: quiet, SysTopicResendInterval: 1})
	if err := server.AddHook(new(auth.AllowHook), nil); err != nil {
		return fmt.Errorf("add hook: %w", err)
	}
	if dir != "" {
		path := filepath.Join(dir, "badger")
		options := badgerdb.DefaultOptions(path).WithSyncWrites(true)
		if err := server.AddHook(new(badger.Hook), &badger.Options{Options: &options, Path: path}); err != nil {
			return fmt.Errorf("add Badger hook: %w", err)
		}
	}
	if err := server.AddListener(listeners.NewTCP(listeners.Config{ID: "tcp", Address: address})); err != nil {
		return fmt.Errorf("listen on %s: %w", address, err)
	}
	if err := server.Serve(); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	<-ctx.Done()
	closeClients(server)
	return server.Close()
}

// closeClients closes the listeners of a mochi broker and its clients. The broker's own
// way takes a read lock within the same read lock, which is a deadlock if a client
// leaves in between.
func closeClients(server *mqtt.Server) {
	server.Listeners.CloseAll(func(string) {
		for _, cl := range server.Clients.GetAll() {
			cl.Stop(packets.ErrServerShuttingDown)
		}
	})
}
