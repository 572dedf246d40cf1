package hooks

import (
	"fmt"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// gaps are what a receiver has lost since the message before: one for each reason.
// They are told with the next message that has room for it, and forgotten with the
// connection.
type gaps []inbox.Gap

// add returns the gaps with another one.
func (g gaps) add(lost inbox.Gap) gaps {
	for i := range g {
		if g[i].Reason == lost.Reason {
			g[i].From = min(g[i].From, lost.From)
			g[i].To = max(g[i].To, lost.To)
			g[i].Messages += lost.Messages
			return g
		}
	}
	return append(g, lost)
}

// loseLocked keeps a gap for the next message, if its receiver is told of gaps.
func (s *session) loseLocked(lost inbox.Gap) {
	if s.link.metadata {
		s.lost = s.lost.add(lost)
	}
}

// toldLocked notes that the gaps are told with a message, until its delivery ends: if it is
// not sent after all, they are for another one.
func (s *session) toldLocked(id uint16) {
	if len(s.lost) > 0 && id != 0 {
		if s.told == nil {
			s.told = map[uint16]gaps{}
		}
		s.told[id] = s.lost
	}
	s.lost = nil
}

// loseToldLocked keeps the gaps for the next message that were to be told with one that is
// not sent.
func (s *session) loseToldLocked(id uint16) {
	for _, lost := range s.told[id] {
		s.loseLocked(lost)
	}
	delete(s.told, id)
}

// passedOver is the gap that a message leaves that is not sent.
func passedOver(e *inbox.Envelope, now time.Time) inbox.Gap {
	gap := inbox.Gap{From: e.Time, To: e.Time, Messages: 1, Reason: inbox.GapOversize}
	if e.Expired(now) {
		gap.Reason = inbox.GapExpired
	}
	return gap
}

func gapText(g *inbox.Gap) string {
	return fmt.Sprintf("%d %s %s %s", g.Messages, g.Reason, timeText(g.From), timeText(g.To))
}

func (g gaps) size() (n int) {
	for i := range g {
		n += 1 + textSize(propertyGap) + textSize(gapText(&g[i]))
	}
	return n
}

// appendTo appends a user property for each gap.
func (g gaps) appendTo(b []byte) []byte {
	for i := range g {
		b = appendUserProperty(b, propertyGap, gapText(&g[i]))
	}
	return b
}
