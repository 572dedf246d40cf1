package hooks

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

func manySubscriptions(prefix string) []inbox.Subscription {
	subs := make([]inbox.Subscription, restoreLater)
	for i := range subs {
		subs[i].Filter = fmt.Sprintf("%s/%d", prefix, i)
	}
	return subs
}

func TestPublisherWaitsForWhomItsMessageIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all restores
		a, b := all.begin(manySubscriptions("a")), all.begin(manySubscriptions("b"))
		done := make(chan struct{})
		go func() {
			defer close(done)
			all.wait(t.Context(), "b/7")
		}()
		all.wait(t.Context(), "c/7") // for neither
		all.end(a)
		synctest.Wait()
		select {
		case <-done:
			t.Error("published before the index has the subscription")
		default:
		}
		all.end(b)
		<-done
		if all.matching("b/7") != nil {
			t.Error("one is restored that has ended")
		}

		all.begin(manySubscriptions("a"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		all.wait(ctx, "a/0") // of a connection that has ended
	})
}

func TestFewAreRestoredAtATime(t *testing.T) {
	var all restores
	subs := manySubscriptions("a")
	if all.begin(subs[1:]) != nil {
		t.Error("a session with few subscriptions is restored after CONNACK")
	}
	if all.begin(append(manySubscriptions("a"), inbox.Subscription{Filter: "$SYS/#"})) != nil {
		t.Error("a session that wants the server's topics is restored after CONNACK")
	}
	first := all.begin(subs)
	for range mostRestores - 1 {
		if all.begin(subs) == nil {
			t.Fatal("fewer at a time than allowed")
		}
	}
	if all.begin(subs) != nil {
		t.Error("more at a time than allowed")
	}
	all.end(first)
	all.end(first) // again, as when the connection ends
	if all.begin(subs) == nil {
		t.Error("no room though one has ended")
	}
}
