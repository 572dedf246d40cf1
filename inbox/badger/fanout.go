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
	bytes  int          // of the messages in items
	behind map[news]int // where in items the news for some is that may yet be of later messages
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

// news is for whom a fanBehind is.
type news struct {
	stream *stream
	to     *handle
}

// audience is the connected members of one stream.
type audience struct {
	all []listener
	at  map[*handle]int
}

type listener struct {
	to     *handle
	source *source
}

func newFanout() *fanout {
	return &fanout{behind: map[news]int{}, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// put appends what one group has. Runs on the committer; never waits.
func (f *fanout) put(items []fanItem) {
	if len(items) == 0 {
		return
	}
	f.mu.Lock()
	for rest := items; len(rest) > 0; {
		n := oneMessage(rest)
		f.putLocked(rest[:n])
		rest = rest[n:]
	}
	f.mu.Unlock()
	f.hint()
}

// putLocked appends one step, or one message from several sources: that is handed
// over from all or from none, for a receiver gets what they grant together.
func (f *fanout) putLocked(items []fanItem) {
	it := &items[0]
	if it.kind != fanEntry {
		f.appendLocked(it)
		return
	}
	if size := it.entry.Envelope.Size(); f.bytes+size <= fanoutBytes && len(f.items) < fanoutItems {
		f.bytes += size
		for i := range items {
			f.appendLocked(&items[i])
		}
		return
	}
	for i := range items {
		if items[i].entry.Position != 0 { // otherwise it is not kept: at once or not at all
			f.leaveOutLocked(&items[i])
		}
	}
}

func (f *fanout) appendLocked(it *fanItem) {
	if it.kind == fanJoin || it.kind == fanEntry && it.entry.Position != 0 {
		clear(f.behind) // what is behind them is news for those behind them
	}
	f.items = append(f.items, *it)
}

// leaveOutLocked appends the news that there is an entry on disk, or adds it to
// earlier news.
func (f *fanout) leaveOutLocked(it *fanItem) {
	whom := news{it.stream, it.to}
	if i, ok := f.behind[whom]; ok {
		f.items[i].entry.Position = it.entry.Position
		return
	}
	f.behind[whom] = len(f.items)
	f.items = append(f.items, fanItem{kind: fanBehind, stream: it.stream, to: it.to, entry: inbox.Entry{Position: it.entry.Position}})
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
			n := oneMessage(rest)
			f.run(rest[:n])
			rest = rest[n:]
		}
		if clear(items); cap(items) > 2*fanoutItems { // after a burst of what is not bounded
			items = nil
		}
	}
}

func (f *fanout) take(items []fanItem) ([]fanItem, bool) {
	for {
		f.mu.Lock()
		if len(f.items) > 0 {
			items, f.items = f.items, items[:0]
			f.bytes = 0
			clear(f.behind)
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

// oneMessage returns how many of the first items are the same message, 1 if the
// first is none.
func oneMessage(items []fanItem) int {
	n := 1
	for n < len(items) && items[n].kind == fanEntry && items[0].kind == fanEntry && items[n].entry.Envelope == items[0].entry.Envelope {
		n++
	}
	return n
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
		it.to.take(it.entry, false)
	case len(items) == 1:
		for _, l := range it.stream.audience.all {
			if grant := (inbox.Grant{}); l.source.grant(&grant, it.entry.Envelope, l.to.receiver) {
				l.to.take(inbox.Entry{Position: it.entry.Position, Envelope: it.entry.Envelope, Grant: grant}, false)
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
	to      *handle
	entry   inbox.Entry
	granted bool           // by one source at least; otherwise there is no entry
	passed  inbox.Position // of the message, if it is in a stream that has nothing of it for the receiver
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
			} else {
				d := f.deliveryTo(l.to)
				d.passed = max(d.passed, it.entry.Position)
			}
		}
	}
	for i := range f.pending {
		d := &f.pending[i]
		if d.granted {
			d.to.take(d.entry, false)
		}
		if d.passed > d.entry.Position {
			d.to.pass(d.passed)
		}
	}
	clear(f.pending)
}

// gather adds what one source grants.
func (f *fanout) gather(to *handle, e inbox.Entry) {
	d := f.deliveryTo(to)
	if d.granted {
		e.Grant = together(d.entry.Grant, e.Grant)
		e.Position = max(d.entry.Position, e.Position) // kept, if one of the sources keeps it
	}
	d.entry, d.granted = e, true
}

// deliveryTo returns what a receiver gets of the message at hand so far.
func (f *fanout) deliveryTo(to *handle) *delivery {
	if i := to.gathered; i >= len(f.pending) || f.pending[i].to != to {
		to.gathered = len(f.pending)
		f.pending = append(f.pending, delivery{to: to})
	}
	return &f.pending[to.gathered]
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
