package bench

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox/leaktest"
)

// TestMain also is the program that bench starts: called as "stock-broker" it
// runs the mochi broker.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "stock-broker" {
		ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer cancel()
		if err := ServeStock(ctx, os.Args[3], ""); err != nil { // stock-broker --listen ADDRESS --data DIR
			slog.Error("serve", "error", err)
			os.Exit(1)
		}
		return
	}
	leaktest.Main(m)
}
