package badger_test

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/leaktest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/storetest"
)

func TestMain(m *testing.M) {
	leaktest.Main(m,
		goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"),
		goleak.IgnoreAnyFunction("go.opencensus.io/stats/view.(*worker).start"))
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func open(t testing.TB, dir string) *badger.Store {
	t.Helper()
	return openKeeping(t, badger.Options{Dir: dir})
}

// openKeeping opens a store that keeps everything for ever, on any disk.
func openKeeping(t testing.TB, o badger.Options) *badger.Store {
	t.Helper()
	o.Reserve, o.Retention, o.Log = -1, -1, quiet()
	s, err := badger.Open(o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return s
}

// verified is a store that sweeps all the time, and is gone through when it has
// been closed.
type verified struct {
	*badger.Store
	t   *testing.T
	dir string
}

func verifying(t *testing.T, o badger.Options) verified {
	t.Helper()
	o.Reserve, o.Retention, o.Log = -1, -1, quiet()
	s, err := badger.OpenSweeping(o, 5*time.Millisecond)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return verified{s, t, o.Dir}
}

func (s verified) Close() error {
	s.t.Helper()
	err := s.Store.Close()
	verifyClean(s.t, s.dir)
	return err
}

func TestContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T, dir string) inbox.Store { return verifying(t, badger.Options{Dir: dir}) })
}

// The contract holds whether messages are kept in streams or not.
func TestContractInStreams(t *testing.T) {
	storetest.Run(t, func(t *testing.T, dir string) inbox.Store {
		return verifying(t, badger.Options{Dir: dir, Pull: []string{"#"}})
	})
}
