package hooks

import (
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// watchTopic is where a connection that watches is told that messages were
// acknowledged by another way: over HTTP, or by another device of the same user.
const watchTopic = inboxTopic + "/" + pull.NoticeAcknowledged

// Bounds of watching.
const (
	watchPause       = time.Second // between two notices to one connection
	mostWatchers     = 64          // connections of one user that are told of each other's inboxes
	mostWatched      = 16          // client ids in one notice,
	mostWatchedBytes = 1 << 10     // and their bytes
)

// watch gathers what one connection is to be told, so that it is told once for all
// that is acknowledged within watchPause.
type watch struct {
	client, user string
	send         func(pull.Notice) bool // reports false if there is no room; it never waits

	mu    sync.Mutex  // guards what follows
	timer *time.Timer // calls tell; nil until it is armed first
	armed bool
	ended bool
	last  time.Time // when it was told last
	next  pull.Notice
	bytes int // of next.Clients
}

// note has the connection be told of the inbox of a client. Runs on any goroutine, and
// never waits.
func (w *watch) note(client string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteLocked(client)
	w.armLocked()
}

func (w *watch) noteLocked(client string) {
	switch {
	case slices.Contains(w.next.Clients, client):
	case len(w.next.Clients) == mostWatched || w.bytes+len(client) > mostWatchedBytes:
		w.next.More = true
	default:
		w.next.Clients = append(w.next.Clients, client)
		w.bytes += len(client)
	}
}

func (w *watch) armLocked() {
	if w.armed || w.ended {
		return
	}
	w.armed = true
	after := max(0, watchPause-time.Since(w.last))
	if w.timer == nil {
		w.timer = time.AfterFunc(after, w.tell)
	} else {
		w.timer.Reset(after)
	}
}

// tell sends what has gathered; what finds no room waits for the next time. Runs on a
// goroutine of the timer.
func (w *watch) tell() {
	w.mu.Lock()
	notice := w.next
	w.next, w.bytes = pull.Notice{}, 0
	w.armed, w.last = false, time.Now()
	ended := w.ended
	w.mu.Unlock()
	if notice.Clients == nil {
		notice.Clients = []string{}
	}
	if ended || w.send(notice) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, client := range notice.Clients {
		w.noteLocked(client)
	}
	w.next.More = w.next.More || notice.More
	w.armLocked()
}

func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

// beginWatch has a connection be told, if it has asked for that. Runs on its read
// goroutine, after CONNACK.
func (l *link) beginWatch() {
	if !l.wishes.watch {
		return
	}
	l.watch = &watch{client: l.client.ID, user: string(l.client.Properties.Username), send: l.notify}
	l.hook.watchers.add(l.watch)
}

// endWatch ends what beginWatch began, if it did.
func (l *link) endWatch() {
	if l.watch != nil {
		l.hook.watchers.remove(l.watch)
		l.watch.end()
	}
}

// notify sends a notice, if there is room for it at once. A client that takes no packet
// so large is not told.
func (l *link) notify(n pull.Notice) bool {
	body, err := json.Marshal(n)
	if err != nil {
		l.hook.log.Error("notice not encoded", "client", l.client.ID, "error", err)
		return true
	}
	p := publication{Envelope: &inbox.Envelope{Topic: watchTopic, Payload: body, ContentType: pull.TypeJSON}}
	if l.session.tooLarge(&p) {
		l.hook.counts.unanswered.Add(1)
		return true
	}
	return l.out.offer(&p)
}
