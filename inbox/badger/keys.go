package badger

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// The keys. Numbers are big endian, so that they sort. An incarnation is the
// number of one life of a session: short and of fixed length, so no client id
// can reach into another's keys, and a clean start is just a new number.
//
//	M format|store|sequence|incarnation   the store's own records
//	M padding                             nothing; see sweeper.fillMemtable
//	S name(client id)                     session
//	u incarnation:8 name(filter)          subscription
//	i incarnation:8 last:8                block of entries, the last of which is at position last
//	k incarnation:8                       delivery state
//	p incarnation:8                       everything of this incarnation is to be deleted; 1 if it is a history's
//	m sequence:8                          body shared by several inboxes
//	R name(topic)                         retained message
//	w incarnation:8                       will of the session
//	x incarnation:8 packet id:2           QoS 2 message taken from the session's client, PUBREL awaited
//	d hash:16                             name that its publisher gave to a message
//	D sequence:8                          message that was deleted
//	E name(sender)                        sender who is being erased
//	c sequence:8                          how many inboxes refer to the body, once others than at first
//	j incarnation:8                       how far the inbox is indexed
//	s incarnation:8 kind:1 name:16 last:8 postings of one list, the last of which is at position last
//	t incarnation:8 name(topic)           that the history has a list of the topic
//	a incarnation:8 pair:16 through:8     what the receiver has acknowledged by itself, the last up to a position
//	b incarnation:8 last:8                that a block has messages that were stored before
//	T ms:8                                that everything up to a position was stored before that time
const (
	prefixMeta         = 'M'
	prefixSession      = 'S'
	prefixSubscription = 'u'
	prefixBlock        = 'i'
	prefixState        = 'k'
	prefixPurge        = 'p'
	prefixBody         = 'm'
	prefixCount        = 'c'
	prefixRetained     = 'R'
	prefixWill         = 'w'
	prefixReceived     = 'x'
	prefixName         = 'd'
	prefixIndexed      = 'j'
	prefixList         = 's'
	prefixTopic        = 't'
	prefixAcked        = 'a'
	prefixBehind       = 'b'
	prefixStamp        = 'T'
	prefixDeletion     = 'D'
	prefixErasure      = 'E'
)

var (
	keyFormat      = []byte("Mformat")
	keyStore       = []byte("Mstore")
	keySequence    = []byte("Msequence")
	keyIncarnation = []byte("Mincarnation")
	keyPadding     = []byte("Mpadding")
)

// incarnation numbers the lives of sessions, from 1.
type incarnation uint64

func numberKey(prefix byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{prefix}, n)
}

func blockKey(inc incarnation, last inbox.Position) []byte {
	k := make([]byte, 0, 17)
	k = append(k, prefixBlock)
	k = binary.BigEndian.AppendUint64(k, uint64(inc))
	return binary.BigEndian.AppendUint64(k, uint64(last))
}

func subscriptionKey(inc incarnation, filter string) []byte {
	return appendName(numberKey(prefixSubscription, uint64(inc)), filter)
}

func sessionKey(r inbox.Receiver) []byte {
	return appendName([]byte{prefixSession}, string(r))
}

// keyNumber returns the number that ends k.
func keyNumber(k []byte) uint64 { return binary.BigEndian.Uint64(k[len(k)-8:]) }

// keyIncarnationOf returns the incarnation that stands behind the prefix of k.
func keyIncarnationOf(k []byte) incarnation { return incarnation(binary.BigEndian.Uint64(k[1:9])) }

// longName is the length from which a name stands in a key as its hash: MQTT
// allows 65,535 bytes, a Badger key about 65,000. The record holds the name.
const longName = 512

// appendName appends a client id or filter of any length. The byte in front
// keeps names and hashes apart.
func appendName(k []byte, name string) []byte {
	if len(name) <= longName {
		return append(append(k, 0), name...)
	}
	sum := sha256.Sum256([]byte(name))
	return append(append(k, 1), sum[:]...)
}
