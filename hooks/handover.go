package hooks

import (
	"context"
	"fmt"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// handover bounds how long a connection waits for an earlier one of the same
// client id to end, and how long giving back a session may take.
const handover = 10 * time.Second

// open gets the session for a connection: no other connection of this client
// has it any more, and none gets it before CONNACK. Runs on the read goroutine.
func (h *Hook) open(l *link, pk *packets.Packet) error {
	ctx, cancel := context.WithTimeout(l.ctx, handover)
	defer cancel()
	if err := h.turns.take(ctx, l.client.ID); err != nil {
		return fmt.Errorf("wait for other connections of the client: %w", err)
	}
	l.turn = true

	h.mu.Lock()
	older := h.owners[l.client.ID]
	h.mu.Unlock()
	if older != nil {
		older.end(packets.ErrSessionTakenOver) // [MQTT-3.1.4-3]
		select {
		case <-older.done:
		case <-ctx.Done():
			return fmt.Errorf("wait for the earlier connection to end: %w", ctx.Err())
		}
	}

	h.mu.Lock()
	h.owners[l.client.ID] = l
	h.mu.Unlock()
	s, err := openSession(ctx, l, pk.Connect.Clean, pk.Properties.ReceiveMaximum)
	if err != nil {
		return err
	}
	l.session = s
	l.connect = packets.ConnectParams{} // the store has the will, and nobody needs the password
	return nil
}

// finish ends everything of a connection that the MQTT library has left: the
// session is given back, the library's traces of the client are removed, and the
// flusher has ended. Runs on the read goroutine, as its last act.
func (h *Hook) finish(l *link) {
	close(l.read)
	l.Close()
	l.requests.wait()
	l.endWatch()
	if l.session != nil {
		l.session.close(inbox.Ending{Expiry: h.expiry(l), Goodbye: l.goodbye})
	}
	if l.client != nil {
		h.removeTraces(l)
		h.mu.Lock()
		if h.owners[l.client.ID] == l {
			delete(h.owners, l.client.ID)
		}
		h.mu.Unlock()
		h.giveTurn(l)
	}
	close(l.done)
	<-l.flushed
}

// removeTraces makes the MQTT library forget a client whose connection has
// ended: it would keep it as long as its session, with subscriptions and a
// buffer.
func (h *Hook) removeTraces(l *link) {
	if l.restoring != nil {
		h.restores.end(l.restoring)
	}
	cl := l.client
	for filter := range cl.State.Subscriptions.GetAll() {
		h.unindex(cl, filter)
	}
	h.misindexed.Add(-int64(len(l.misindexed))) // the library may have been first
	l.misindexed = nil
	// Nobody else can be in its place yet: a new connection waits for this one.
	if known, ok := h.server.Clients.Get(cl.ID); ok && known == cl {
		h.server.Clients.Delete(cl.ID)
	}
}

func (h *Hook) giveTurn(l *link) {
	if l.turn {
		l.turn = false
		h.turns.give(l.client.ID)
	}
}

// expiry is how long the session of a connection outlives it, as the client has
// last said, within what the server allows.
func (h *Hook) expiry(l *link) inbox.Expiry {
	cl := l.client
	longest := inbox.Expiry(h.server.Options.Capabilities.MaximumSessionExpiryInterval)
	switch {
	case l.v5:
		return min(inbox.Expiry(cl.Properties.Props.SessionExpiryInterval), longest)
	case cl.Properties.Clean:
		return inbox.ExpiryAtOnce // [MQTT-3.1.2-6]
	}
	return min(h.options.SessionExpiryV3, longest)
}
