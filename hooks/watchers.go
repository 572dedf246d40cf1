package hooks

import (
	"slices"
	"sync"
)

// watchers are the connections that watch. To find who is to be told costs the same
// however many there are.
type watchers struct {
	mu     sync.Mutex          // guards what follows
	own    map[string]*watch   // by client id: the inbox of its own
	ofUser map[string][]*watch // by user name, mostWatchers each
}

func newWatchers() *watchers {
	return &watchers{own: map[string]*watch{}, ofUser: map[string][]*watch{}}
}

func (all *watchers) add(w *watch) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.own[w.client] = w
	if of := all.ofUser[w.user]; w.user != "" && len(of) < mostWatchers {
		all.ofUser[w.user] = append(of, w)
	}
}

func (all *watchers) remove(w *watch) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.own[w.client] == w {
		delete(all.own, w.client)
	}
	left := slices.DeleteFunc(all.ofUser[w.user], func(other *watch) bool { return other == w })
	if all.ofUser[w.user] = left; len(left) == 0 {
		delete(all.ofUser, w.user)
	}
}

// of returns who is to be told that a user has acknowledged something in the inbox of a
// client.
func (all *watchers) of(client, user string) []*watch {
	all.mu.Lock()
	defer all.mu.Unlock()
	told := slices.Clone(all.ofUser[user])
	if own := all.own[client]; own != nil && !slices.Contains(told, own) {
		told = append(told, own)
	}
	return told
}

// Acknowledged tells connections that watch (inbox-watch in CONNECT) that a user has
// acknowledged messages in the inbox of a client: that client, and others of the user. It is
// for programs that offer to acknowledge in another way than MQTT. It never waits.
func (h *Hook) Acknowledged(client, user string) { h.acknowledged(client, user, nil) }

// acknowledged tells everybody but the connection that has asked for it.
func (h *Hook) acknowledged(client, user string, asker *watch) {
	for _, w := range h.watchers.of(client, user) {
		if w != asker {
			w.note(client)
		}
	}
}
