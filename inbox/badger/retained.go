package badger

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// A retained message stands under its topic: the number of the message as
// uvarint, and the envelope. None is kept in memory: a SUBSCRIBE reads those
// keys that its filter can match.

func retainedKey(topic string) []byte { return appendName([]byte{prefixRetained}, topic) }

// retain makes e the retained message of its topic, or, with an empty payload,
// removes the one there is [MQTT-3.3.1-5] [MQTT-3.3.1-6].
func (g *commitGroup) retain(e *inbox.Envelope, record []byte) {
	key := retainedKey(e.Topic)
	if len(e.Payload) == 0 {
		g.delete(key)
		return
	}
	value := binary.AppendUvarint(make([]byte, 0, len(record)+binary.MaxVarintLen64), uint64(e.ID.Sequence))
	g.putUntil(key, append(value, record...), ownExpiry(e)) // retention is for messages that wait; this one stays
}

func (s *Store) parseRetained(value []byte) (*inbox.Envelope, []byte, error) {
	number, n := binary.Uvarint(value)
	if n <= 0 {
		return nil, nil, fmt.Errorf("read retained message: number: %w", inbox.ErrDamaged)
	}
	e, err := inbox.ParseEnvelope(value[n:])
	if err != nil {
		return nil, nil, err
	}
	e.ID = inbox.MessageID{Sequence: inbox.Position(number), Store: s.id}
	return e, value[n:], nil
}

// Retained implements [inbox.Store]. It reads every retained key that begins
// like the filter up to its first wildcard, about 1 µs each; without a wildcard
// only the one.
func (s *Store) Retained(ctx context.Context, filter string) iter.Seq2[*inbox.Envelope, error] {
	return func(yield func(*inbox.Envelope, error) bool) {
		for key, err := range s.retainedKeys(ctx, filter) {
			var e *inbox.Envelope
			if err == nil {
				err = s.view(func(txn *badger.Txn) (err error) { e, _, err = s.getRetained(txn, key); return err })
			}
			if errors.Is(err, badger.ErrKeyNotFound) {
				continue // replaced or removed meanwhile
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

func (s *Store) getRetained(txn *badger.Txn, key []byte) (e *inbox.Envelope, record []byte, err error) {
	item, err := txn.Get(key)
	if err != nil {
		return nil, nil, err
	}
	value, err := item.ValueCopy(nil)
	if err != nil {
		return nil, nil, err
	}
	return s.parseRetained(value)
}

// retainedPage is how many keys are read, and how many retained messages are
// put into an inbox, at once.
const retainedPage = 200

// retainedKeys yields the keys of the retained messages that match a filter, a
// page at a time, so that no transaction stays open while they are used.
func (s *Store) retainedKeys(ctx context.Context, filter string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		if !strings.ContainsAny(filter, "+#") {
			yield(retainedKey(filter), ctx.Err())
			return
		}
		prefix := []byte{prefixRetained, 0}
		if literal, _, _ := strings.Cut(filter, "+"); len(literal) <= longName {
			prefix = append(prefix, strings.TrimSuffix(strings.TrimSuffix(literal, "#"), "/")...)
		}
		for _, p := range [][]byte{prefix, {prefixRetained, 1}} { // names, and hashes of long names
			for from := p; from != nil; {
				var keys [][]byte
				err := s.view(func(txn *badger.Txn) (err error) {
					keys, from, err = s.matchRetained(txn, p, from, filter)
					return err
				})
				for _, k := range keys {
					if err == nil && ctx.Err() == nil && !yield(k, nil) {
						return
					}
				}
				if err = errors.Join(err, ctx.Err()); err != nil {
					yield(nil, err)
					return
				}
			}
		}
	}
}

// matchRetained returns a page of the keys with a prefix that match, and where
// to go on.
func (s *Store) matchRetained(txn *badger.Txn, prefix, from []byte, filter string) (keys [][]byte, next []byte, err error) {
	it := txn.NewIterator(badger.IteratorOptions{Prefix: prefix})
	defer it.Close()
	for it.Seek(from); it.Valid(); it.Next() {
		item := it.Item()
		topic := string(item.Key()[2:])
		if item.Key()[1] != 0 { // the key has only the topic's hash
			value, err := item.ValueCopy(nil)
			if err != nil {
				return nil, nil, err
			}
			e, _, err := s.parseRetained(value)
			if err != nil {
				s.reportDamage("retained message", item.KeyCopy(nil), err)
				continue
			}
			topic = e.Topic
		}
		if len(keys) == retainedPage {
			return keys, item.KeyCopy(nil), nil
		}
		if inbox.MatchTopic(filter, topic) {
			keys = append(keys, item.KeyCopy(nil))
		}
	}
	return keys, nil, nil
}

// sendRetained puts the retained messages that match a new subscription into
// the inbox, as new entries of it. Those that were stored after the
// subscription are in the inbox already, and so are those that it has brought otherwise.
func (h *handle) sendRetained(ctx context.Context, sub inbox.Subscription, since inbox.Position, but []inbox.Position) error {
	var page [][]byte
	for key, err := range h.s.retainedKeys(ctx, sub.Filter) {
		if err != nil {
			return err
		}
		if page = append(page, key); len(page) < retainedPage {
			continue
		}
		if err := h.giveRetained(ctx, page, sub, since, but); err != nil {
			return err
		}
		page = nil
	}
	return h.giveRetained(ctx, page, sub, since, but)
}

// giveRetained gives a receiver the retained messages under some keys, with as
// many commits as their size asks for.
func (h *handle) giveRetained(ctx context.Context, keys [][]byte, sub inbox.Subscription, since inbox.Position, but []inbox.Position) error {
	for len(keys) > 0 {
		given, err := run(ctx, h.s, "send retained messages", func(g *commitGroup) (n int, err error) {
			if !h.owns() {
				return 0, inbox.ErrFenced
			}
			if g.full && sub.QoS > 0 {
				return 0, inbox.ErrFull
			}
			for n == 0 || n < len(keys) && g.size < groupBytes {
				g.giveRetained(h, keys[n], sub, since, but)
				n++
			}
			return n, nil
		})
		if err != nil {
			return err
		}
		keys = keys[given:]
	}
	return nil
}

// giveRetained gives a receiver the retained message that stands under key now.
// It is read here, so that it cannot be older than what the receiver gets live.
func (g *commitGroup) giveRetained(h *handle, key []byte, sub inbox.Subscription, since inbox.Position, but []inbox.Position) {
	s := g.s
	e, record, err := s.getRetained(g.txn, key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return
	}
	if err != nil {
		s.reportDamage("retained message", key, err)
		return
	}
	if e.ID.Sequence > since || slices.Contains(but, e.ID.Sequence) || e.Expired(g.now) {
		return
	}
	if sub.NoLocal && e.Client == string(h.receiver) { // [MQTT-3.8.3-3]
		return
	}
	grant := inbox.Grant{QoS: min(e.QoS, sub.QoS), Retain: true} // [MQTT-3.3.1-8]
	if sub.Identifier != 0 {
		grant.Identifiers = []uint32{sub.Identifier}
	}
	p := g.nextSequence()
	g.kept = g.kept[:0]
	g.give(h.member, e, p, grant, false)
	g.keep(p, e, record, g.now.UnixMilli())
}
