package badger

import (
	"context"
	"fmt"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// PublishInPieces publishes messages, the last under a packet id, in a group of which
// everything that may be in a transaction of its own is, and calls between after each.
func (s *Store) PublishInPieces(in inbox.Inbox, id uint16, all []*inbox.Envelope, between func()) error {
	return s.do(context.Background(), "publish", func(g *commitGroup) error {
		piece := func() error {
			if err := g.separate(); err != nil {
				return err
			}
			between()
			return nil
		}
		for i, e := range all {
			record := inbox.AppendEnvelope(nil, e)
			var err error
			if i == len(all)-1 {
				_, err = g.publishOnce(&operation{from: in.(*handle), packetID: id, envelope: e, record: &record})
			} else {
				_, err = g.appendOnce(e, record)
			}
			if err != nil {
				return err
			}
		}
		for i := range g.blocks {
			g.closeBlock(&g.blocks[i])
			if err := piece(); err != nil {
				return err
			}
		}
		for i := range g.bodies {
			g.writeBody(&g.bodies[i])
			if err := piece(); err != nil {
				return err
			}
		}
		for i := range g.last {
			g.writeMark(&g.last[i])
			if err := piece(); err != nil {
				return err
			}
		}
		g.bodies, g.last = nil, nil
		return nil
	})
}

// A body and what says that its message was stored are in one transaction, however full
// that is.
func TestBodyAndItsMarksTogether(t *testing.T) {
	s := openArchive(t, t.TempDir())
	var body inbox.Position
	for _, full := range []struct{ keys, bytes int }{
		{3, 0}, {2, 0}, {1, 0}, {100, 1200}, {100, 800}, {100, 100},
	} {
		err := s.do(t.Context(), "fill", func(g *commitGroup) error {
			if err := g.separate(); err != nil {
				return err
			}
			for i := range int(s.db.MaxBatchCount()) - 2 - full.keys {
				if full.keys < 100 {
					g.put(fmt.Appendf(nil, "Z%d", i), nil)
				}
			}
			for n := int(s.db.MaxBatchSize()) - full.bytes; full.keys == 100 && n > 100; n -= 100_000 {
				g.put(fmt.Appendf(nil, "Z%d", n), make([]byte, max(min(n, 100_000)-100, 0)))
			}
			body += 10
			g.putBody(body, make([]byte, 700), never)
			g.putMark(body, nameKey("c", fmt.Sprint(body)), []byte{1, 1}, 0)
			g.putMark(body, receivedKey(1, uint16(body)), []byte{}, 0)
			before := s.Keys()
			g.writeLast()
			if after := s.Keys(); after["m"]-before["m"] != after["d"]-before["d"] || after["m"]-before["m"] != after["x"]-before["x"] {
				t.Errorf("%+v left: first there are %v, then %v", full, before, after)
			}
			g.bodies, g.last = nil, nil
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if keys := s.Keys(); keys["m"] != keys["d"] || keys["m"] != keys["x"] || keys["m"] != int(body)/10 {
			t.Errorf("%+v left: in the end %v", full, keys)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A message that is deleted has its mark, and everybody is to pass over it, in one
// transaction, however full that is; and so it is with its name and its topic.
func TestMarkIsWhole(t *testing.T) {
	s := openArchive(t, t.TempDir())
	const most = 6
	var ids []inbox.MessageID
	for i := range most {
		e := &inbox.Envelope{
			Topic: fmt.Sprintf("a/%d", i), QoS: 1, Retain: true, Client: "c", Payload: []byte("x"),
			UserProperties: []inbox.UserProperty{{Key: inbox.PropertyMessageID, Value: fmt.Sprint(i)}},
		}
		stored := make(chan inbox.Receipt, 1)
		s.Append(t.Context(), e, func(r inbox.Receipt, _ error) { stored <- r })
		ids = append(ids, (<-stored).ID)
	}
	split := 0
	for room, id := range ids {
		err := s.do(t.Context(), "fill", func(g *commitGroup) error {
			if err := g.separate(); err != nil {
				return err
			}
			for i := range int(s.db.MaxBatchCount()) - 1 - room {
				g.put(fmt.Appendf(nil, "Z%d", i), nil)
			}
			s.afterCommit = func() {
				split++
				if keys := s.Keys(); keys["D"]+keys["R"] != most || keys["D"]+keys["d"] != most {
					t.Errorf("room for %d keys: then there are %v", room, keys)
				}
			}
			n, err := g.erase([]inbox.Entry{{Position: id.Sequence}}, "c")
			if n != 1 {
				t.Errorf("room for %d keys: %d erased", room, n)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if split <= most {
		t.Errorf("%d transactions for %d messages: the test tests nothing", split, most)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
