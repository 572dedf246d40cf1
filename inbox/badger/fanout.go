package badger

import (
	"sync"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Bounds of what waits to be handed to the connected members of streams.
const (
	fanoutItems = 4096
	fanoutBytes = 16 << 20
)

// fanout hands the messages of streams over to the members that are connected,
// so that what the committer does for a message does not grow with their number,
// nor wait for them. It is a queue and a goroutine; the committer puts, in the
// order of commits, and never waits: what is over the bounds is not handed over
// but left for the members to read from disk.
//
// Whoever has been a member once gets everything this way, own entries too, so
// that all come in one order.
type fanout struct {
	mu     sync.Mutex
	items  []fanItem
	bytes  int // of the envelopes in items
	closed bool

	wake chan struct{} // holds one; a hint that there is something
	done chan struct{}

	pending []delivery // working space of the goroutine
}

// fanItem is one step of the fan-out: an entry for the members of a stream, or
// for one receiver; the news that there are entries to be read from disk; or a
// member that has connected or gone.
type fanItem struct {
	kind    fanKind
	stream  *stream // nil for one receiver's own entry, and for many streams
	to      *handle
	sources []*source   // of the streams that a member has connected to, or many that one has left
	entry   inbox.Entry // its position is 0 if it is not kept
}

type fanKind byte

const (
	fanEntry  fanKind = iota // entry is for to, or for all members of stream
	fanBehind                // there is something up to entry.Position
	fanJoin                  // to is a member, of one or more streams, as sources say
	fanLeave                 // to is none any more, of stream or of those in sources
)

// audience is the connected members of one stream.
type audience struct {
	all []listener
	at  map[*handle]int
}

type listener struct {
	to     *handle
	source *source
}

func newFanout() *fanout { return &fanout{wake: make(chan struct{}, 1), done: make(chan struct{})} }

// put appends what one group has. Runs on the committer; never waits.
func (f *fanout) put(items []fanItem) {
	if len(items) == 0 {
		return
	}
	f.mu.Lock()
	for i := range items {
		f.putLocked(&items[i])
	}
	f.mu.Unlock()
	f.hint()
}

func (f *fanout) putLocked(it *fanItem) {
	if it.kind == fanEntry {
		if it.entry.Envelope.Size()+f.bytes <= fanoutBytes && len(f.items) < fanoutItems {
			f.bytes += it.entry.Envelope.Size()
			f.items = append(f.items, *it)
			return
		}
		if it.entry.Position == 0 {
			return // not kept: at once or not at all
		}
		it.kind, it.entry.Envelope = fanBehind, nil
	}
	if last := len(f.items) - 1; it.kind == fanBehind && last >= 0 && f.items[last].supersedes(it) {
		f.items[last].entry.Position = it.entry.Position
		return
	}
	f.items = append(f.items, *it)
}

// supersedes reports whether it and a later item are the same news.
func (it *fanItem) supersedes(later *fanItem) bool {
	return it.kind == fanBehind && it.stream == later.stream && it.to == later.to
}

func (f *fanout) hint() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// close ends the goroutine when it has done what was put, and waits for it.
func (f *fanout) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.hint()
	<-f.done
}

// loop is the fan-out's goroutine.
func (f *fanout) loop() {
	defer close(f.done)
	var items []fanItem
	for {
		var more bool
		if items, more = f.take(items); !more {
			return
		}
		for rest := items; len(rest) > 0; {
			n := 1
			for n < len(rest) && rest[n].sameMessage(&rest[0]) {
				n++
			}
			f.run(rest[:n])
			rest = rest[n:]
		}
		clear(items)
	}
}

func (f *fanout) take(items []fanItem) ([]fanItem, bool) {
	for {
		f.mu.Lock()
		if len(f.items) > 0 {
			items, f.items = f.items, items[:0]
			f.bytes = 0
			f.mu.Unlock()
			return items, true
		}
		closed := f.closed
		f.mu.Unlock()
		if closed {
			return nil, false
		}
		<-f.wake
	}
}

func (it *fanItem) sameMessage(other *fanItem) bool {
	return it.kind == fanEntry && other.kind == fanEntry && it.entry.Envelope == other.entry.Envelope
}

// run does one step; several items are one message from several sources. Cost:
// about 0.1 µs for each member that gets it.
func (f *fanout) run(items []fanItem) {
	switch it := &items[0]; {
	case it.kind == fanJoin:
		for _, src := range it.sources {
			src.stream.audience.join(listener{it.to, src})
		}
	case it.kind == fanLeave && it.stream != nil:
		it.stream.audience.leave(it.to)
	case it.kind == fanLeave:
		for _, src := range it.sources {
			src.stream.audience.leave(it.to)
		}
	case it.kind == fanBehind && it.to != nil:
		it.to.fallBehind(it.entry.Position)
	case it.kind == fanBehind:
		for _, l := range it.stream.audience.all {
			l.to.fallBehind(it.entry.Position)
		}
	case len(items) == 1 && it.to != nil:
		it.to.hand(it.entry)
	case len(items) == 1:
		for _, l := range it.stream.audience.all {
			if grant := (inbox.Grant{}); l.source.grant(&grant, it.entry.Envelope, l.to.receiver) {
				l.to.hand(inbox.Entry{Position: it.entry.Position, Envelope: it.entry.Envelope, Grant: grant})
			} else {
				l.to.pass(it.entry.Position)
			}
		}
	default:
		f.runMerged(items)
	}
}

// delivery is what one receiver gets of a message that comes to it from several
// sources.
type delivery struct {
	to    *handle
	entry inbox.Entry
}

// runMerged hands one message over to the members of several streams and to
// receivers with entries of their own: once to each, with everything granted
// taken together [MQTT-3.3.4-2].
func (f *fanout) runMerged(items []fanItem) {
	f.pending = f.pending[:0]
	for i := range items {
		it := &items[i]
		if it.to != nil {
			f.gather(it.to, it.entry)
			continue
		}
		for _, l := range it.stream.audience.all {
			if grant := (inbox.Grant{}); l.source.grant(&grant, it.entry.Envelope, l.to.receiver) {
				f.gather(l.to, inbox.Entry{Position: it.entry.Position, Envelope: it.entry.Envelope, Grant: grant})
			}
		}
	}
	for i := range f.pending {
		f.pending[i].to.hand(f.pending[i].entry)
	}
	clear(f.pending)
}

func (f *fanout) gather(to *handle, e inbox.Entry) {
	if i := to.gathered; i < len(f.pending) && f.pending[i].to == to {
		was := &f.pending[i].entry
		was.Grant = merge(was.Grant, e.Grant)
		was.Position = max(was.Position, e.Position) // kept, if one of the sources keeps it
		return
	}
	to.gathered = len(f.pending)
	f.pending = append(f.pending, delivery{to, e})
}

// join adds a listener, or replaces the one of the same receiver.
func (a *audience) join(l listener) {
	if a.at == nil {
		a.at = map[*handle]int{}
	}
	if i, ok := a.at[l.to]; ok {
		a.all[i] = l
		return
	}
	a.at[l.to] = len(a.all)
	a.all = append(a.all, l)
}

func (a *audience) leave(h *handle) {
	i, ok := a.at[h]
	if !ok {
		return
	}
	last := len(a.all) - 1
	a.all[i] = a.all[last]
	a.at[a.all[i].to] = i
	a.all[last] = listener{}
	a.all = a.all[:last]
	delete(a.at, h)
}
