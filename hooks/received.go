package hooks

import "sync"

// received is the packet ids of the QoS 2 messages that a client has published
// and not yet released: a message that comes again under one of them is the same
// one, and is not stored again [MQTT-4.3.3-10]. It belongs to the session and
// outlives the connection.
type received struct {
	mu  sync.Mutex
	ids map[uint16]*link // who is told once the message is stored; nil when it is
}

func newReceived() *received { return &received{ids: map[uint16]*link{}} }

// begin notes that a message has come on a link. If it is not new it says
// whether the message is stored already; if it is still being stored, this link
// is told when it is.
func (r *received) begin(id uint16, l *link) (isNew, stored bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting, known := r.ids[id]
	if known && waiting == nil {
		return false, true
	}
	r.ids[id] = l
	return !known, false
}

// stored notes that the message is on stable storage and returns the link to
// tell.
func (r *received) stored(id uint16) *link {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.ids[id]
	r.ids[id] = nil
	return l
}

// forget frees the id of a message that is not stored and returns the link to
// tell.
func (r *received) forget(id uint16) *link {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.ids[id]
	delete(r.ids, id)
	return l
}

// release frees the id and reports whether there was a stored message under it.
func (r *received) release(id uint16) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting, known := r.ids[id]
	if !known || waiting != nil {
		return false
	}
	delete(r.ids, id)
	return true
}

func (r *received) empty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ids) == 0
}
