package clienttest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// message is what a client hands to its user.
type message struct {
	topic   string
	qos     byte
	payload string
}

func (m message) String() string {
	return fmt.Sprintf("%s (qos %d) %.12q of %d bytes", m.topic, m.qos, m.payload, len(m.payload))
}

// request is what a library that acknowledges a message when its user has taken it, on a
// goroutine of its own, asks at last: when the answer has come, it has acknowledged all
// that came before.
const request = "$inbox/mode"

// received gathers what comes on a visit, in the order in which the library hands
// it over. All methods may be called concurrently.
type received struct {
	expect int           // so many different messages are enough
	half   chan struct{} // closed when half of them have come
	enough chan struct{} // closed when all have

	answered chan struct{} // closed when the answer to a request has come
	once     sync.Once     // closes it

	mu   sync.Mutex // guards what follows
	all  []message
	seen map[message]bool
}

func expect(n int) *received {
	r := &received{
		expect: n, half: make(chan struct{}), enough: make(chan struct{}),
		answered: make(chan struct{}), seen: map[message]bool{},
	}
	if n == 0 {
		close(r.enough)
	}
	return r
}

func (r *received) add(m message) {
	if strings.HasPrefix(m.topic, request) {
		r.once.Do(func() { close(r.answered) })
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, m)
	if r.seen[m] {
		return
	}
	r.seen[m] = true
	switch len(r.seen) {
	case r.expect:
		close(r.enough)
	case (r.expect + 1) / 2:
		close(r.half)
	}
}

// messages returns all that came.
func (r *received) messages() []message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// first returns each different message that came, when it came first.
func (r *received) first() []message {
	var all []message
	seen := map[message]bool{}
	for _, m := range r.messages() {
		if !seen[m] {
			seen[m] = true
			all = append(all, m)
		}
	}
	return all
}

// difference says where messages begin to differ from those that are wanted,
// and is empty if they do not.
func difference(got, want []message) string {
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	if i == len(got) && i == len(want) {
		return ""
	}
	return fmt.Sprintf("got %d messages, want %d; from number %d on got %v, want %v", len(got), len(want), i, next(got, i), next(want, i))
}

// next is a few messages, for a failure message.
func next(all []message, i int) []message { return all[i:min(len(all), i+4)] }

func (r *received) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("%d messages came, %d different ones of %d", len(r.all), len(r.seen), r.expect)
}
