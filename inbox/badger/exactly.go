package badger

import (
	"context"
	"encoding/binary"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// receivedKey is the key that records a QoS 2 packet id of a publisher. It is
// written with the message and deleted before PUBCOMP.
func receivedKey(inc incarnation, id uint16) []byte {
	return binary.BigEndian.AppendUint16(numberKey(prefixReceived, uint64(inc)), id)
}

// Publish implements [inbox.Inbox]. Cost: as for [Store.Append], and one key.
func (h *handle) Publish(ctx context.Context, id uint16, e *inbox.Envelope, done func(inbox.Receipt, error)) {
	h.s.enqueue(ctx, e, operation{stored: done, from: h, packetID: id})
}

// publishOnce applies a message that came under a packet id.
func (g *commitGroup) publishOnce(op *operation) (inbox.Receipt, error) {
	h := op.from
	if !h.owns() {
		return inbox.Receipt{}, inbox.ErrFenced
	}
	if h.received[op.packetID] {
		return inbox.Receipt{Duplicate: true}, nil
	}
	receipt, err := g.appendOnce(op.envelope, *op.record)
	if err != nil {
		return receipt, err
	}
	h.received[op.packetID] = true
	if h.stored {
		g.putMark(receipt.ID.Sequence, receivedKey(h.incarnation, op.packetID), []byte{}, 0)
	}
	return receipt, nil
}

// Received implements [inbox.Inbox].
func (h *handle) Received() []uint16 { return h.resumedReceived }

// Complete implements [inbox.Inbox].
func (h *handle) Complete(id uint16, done func(known bool, err error)) {
	var known bool
	h.s.later(func(g *commitGroup) error {
		if !h.owns() {
			return inbox.ErrFenced
		}
		if known = h.received[id]; !known {
			return nil
		}
		delete(h.received, id)
		if h.stored {
			g.putLast(receivedKey(h.incarnation, id), nil)
		}
		return nil
	}, func(err error) { done(known && err == nil, err) })
}

// readReceived reads the recorded packet ids of a session.
func readReceived(txn *badger.Txn, inc incarnation) (ids []uint16) {
	it := txn.NewIterator(badger.IteratorOptions{Prefix: numberKey(prefixReceived, uint64(inc))})
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		k := it.Item().Key()
		ids = append(ids, binary.BigEndian.Uint16(k[len(k)-2:]))
	}
	return ids
}
