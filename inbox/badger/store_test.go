package badger_test

import (
	"io"
	"log/slog"
	"testing"

	"go.uber.org/goleak"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/storetest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"),
		goleak.IgnoreAnyFunction("go.opencensus.io/stats/view.(*worker).start"))
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func open(t testing.TB, dir string) *badger.Store {
	t.Helper()
	s, err := badger.Open(badger.Options{Dir: dir, Reserve: -1, Retention: -1, Log: quiet()})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return s
}

func TestContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T, dir string) inbox.Store { return open(t, dir) })
}
