package badger

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// nameHash stands for a name in keys of a fixed length.
type nameHash [8]byte

func hashName(name string) nameHash {
	sum := sha256.Sum256([]byte(name))
	return nameHash(sum[:8])
}

// pair is the messages of one sender in one topic: the hash of the sender, and that
// of the topic. Two pairs with one hash, which somebody would have to look for, are
// counted as one; messages themselves are selected by their names.
type pair [16]byte

func pairOf(sender, topic string) pair { return hashName(sender).and(hashName(topic)) }

func (h nameHash) and(o nameHash) (p pair) {
	copy(p[:8], h[:])
	copy(p[8:], o[:])
	return p
}

func (p pair) sender() nameHash { return nameHash(p[:8]) }
func (p pair) topic() nameHash  { return nameHash(p[8:]) }
func (p pair) swapped() pair    { return p.topic().and(p.sender()) }

// listKind is which entries of an inbox a list has.
type listKind byte

// The kinds. A list of a kind but listAll has a name: a pair, or the hash of a sender
// or a topic and zeros. They are cleaned in this order, so that listAll tells how much
// there is to clean.
//
// One is no list: a key of listOfTopic, without a record, says that there is a list of a
// pair, whose halves its name has in the other order.
const (
	listPair listKind = 1 + iota
	listTopic
	listSender
	listOfTopic
	listAll
)

// listKinds is a set of kinds.
type listKinds byte

func kindsOf(kinds ...listKind) (set listKinds) {
	for _, k := range kinds {
		set |= 1 << k
	}
	return set
}

func (set listKinds) has(k listKind) bool { return set&(1<<k) != 0 }

// listID names one list of an inbox.
type listID struct {
	kind listKind
	name pair
}

// lists returns the lists that have the messages of a sender in a topic.
func (set listKinds) lists(sender, topic string) (all []listID) {
	for kind := listPair; kind <= listAll; kind++ {
		if !set.has(kind) {
			continue
		}
		id := listID{kind: kind}
		switch kind {
		case listPair:
			id.name = pairOf(sender, topic)
		case listTopic:
			id = topicList(topic)
		case listSender:
			id = senderList(sender)
		}
		all = append(all, id)
	}
	return all
}

// names returns what the record of a list says of the messages that it has.
func (kind listKind) names(sender, topic string) (s, t string) {
	if kind == listPair || kind == listSender {
		s = sender
	}
	if kind == listPair || kind == listTopic {
		t = topic
	}
	return s, t
}

func topicList(topic string) listID   { return listID{listTopic, hashName(topic).and(nameHash{})} }
func senderList(sender string) listID { return listID{listSender, hashName(sender).and(nameHash{})} }

// listKeyLength is that of all keys of lists.
const listKeyLength = 1 + 8 + 1 + 16 + 8

// key returns the key of the list's record whose last posting is at a position; or,
// with endless, of its open record: the last, which is written again with what comes. The
// closed records of a list, which are in front of it, are next to each other in the order
// of their postings; the open records of all lists of a kind are next to each other behind
// those, in the order of the lists.
func (id listID) key(inc incarnation, last inbox.Position) []byte {
	k := make([]byte, 0, listKeyLength)
	k = append(k, prefixList)
	k = binary.BigEndian.AppendUint64(k, uint64(inc))
	k = append(k, id.kind.place(last == endless))
	k = append(k, id.name[:]...)
	return binary.BigEndian.AppendUint64(k, uint64(last))
}

// place is where the records of a kind are, closed ones or open ones.
func (kind listKind) place(open bool) byte {
	if open {
		return 2*byte(kind) + 1
	}
	return 2 * byte(kind)
}

// openPrefix is that of the keys of all open records of a kind.
func openPrefix(inc incarnation, kind listKind) []byte {
	return append(numberKey(prefixList, uint64(inc)), kind.place(true))
}

// listOf returns the list to which a key belongs.
func listOf(key []byte) listID { return listID{listKind(key[9] / 2), pair(key[10:26])} }

// isOpen reports whether a key is that of an open record.
func isOpen(key []byte) bool { return key[9]%2 == 1 }
