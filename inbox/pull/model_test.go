package pull

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// modelMessage is one message in the plain list that an inbox should be.
type modelMessage struct {
	id, sender, topic string
	gone              bool // read or deleted
}

// modelWalk is a walk with its cursors.
type modelWalk struct {
	request PullRequest
	given   []int // of the whole walk, as indexes of the list
	page    []int
	at      int // it goes on behind this one, or in front of it
	next    string
}

func (w *modelWalk) matches(m *modelMessage) bool {
	return (w.request.Sender == "" || w.request.Sender == m.sender) &&
		(w.request.Topic == "" || inbox.MatchTopic(w.request.Topic, m.topic))
}

// model drives a house at random, and compares it with a list.
type model struct {
	*house
	r        *rand.Rand
	messages []modelMessage
	walks    []*modelWalk
}

// Walks in every order and selection go on beside each other, while messages come, are
// acknowledged in other ways and deleted, answers are lost, and the store restarts.
func TestInboxIsAPlainList(t *testing.T) {
	for seed := range uint64(40) {
		m := &model{house: newHouse(t, keepAll), r: rand.New(rand.NewPCG(seed, 1))}
		m.join("phone", "#")
		for step := range 150 {
			did := m.step()
			unread := 0
			for _, message := range m.messages {
				if !message.gone && message.sender != "ann" {
					unread++
				}
			}
			if n := m.unread(phone); n != unread {
				t.Fatalf("seed %d, step %d, %s: %d are unread, expected %d", seed, step, did, n, unread)
			}
			if t.Failed() {
				t.Fatalf("seed %d, step %d, %s", seed, step, did)
			}
		}
	}
}

func (m *model) one(of ...string) string { return of[m.r.IntN(len(of))] }

func (m *model) step() string {
	switch m.r.IntN(12) {
	case 0, 1, 2:
		sender, topic := m.one("ann", "ben", "eve"), m.one("chat/1", "chat/2", "news")
		for _, id := range m.send(1+m.r.IntN(8), sender, topic, 0) {
			m.messages = append(m.messages, modelMessage{id: id, sender: sender, topic: topic})
		}
		return "sent"
	case 3:
		m.begin()
		return "began"
	case 4:
		return m.acknowledge()
	case 5:
		return m.acknowledgeWalk()
	case 6:
		if i := m.any(); i >= 0 && m.messages[i].sender == "ben" {
			m.delete(m.messages[i].id)
			m.messages[i].gone = true
		}
		return "deleted"
	case 7:
		m.restart()
		return "restarted"
	}
	if len(m.walks) == 0 {
		return "nothing"
	}
	w := m.walks[m.r.IntN(len(m.walks))]
	if w.next == "" {
		return "nothing"
	}
	for range 1 + m.r.IntN(2) { // the first answer may be lost
		lost := *w
		m.page(&lost)
		if m.r.IntN(2) == 0 {
			*w = lost
			break
		}
	}
	return fmt.Sprintf("went on with %+v", w.request)
}

// any is the index of a message, -1 if there are none.
func (m *model) any() int { return m.r.IntN(len(m.messages)+1) - 1 }

func (m *model) begin() {
	w := &modelWalk{at: -1, request: PullRequest{
		Limit: 1 + m.r.IntN(7), Order: m.one(OldestFirst, NewestFirst),
		Sender: m.one("", "ann", "ben", "nobody"), Topic: m.one("", "chat/+", "news", "#"),
	}}
	if w.request.Order == NewestFirst {
		w.at = len(m.messages)
	}
	if i := m.any(); i >= 0 && m.r.IntN(3) == 0 {
		w.at = i
		if w.request.Order == NewestFirst {
			w.request.Before = m.messages[i].id
		} else {
			w.request.After = m.messages[i].id
		}
	}
	m.page(w)
	m.walks = append(m.walks, w)
}

// page asks for the next page, and compares.
func (m *model) page(w *modelWalk) {
	r, step, ack := w.request, 1, m.r.IntN(3) > 0
	r.Ack = &ack
	if w.next != "" && ack {
		m.read(w.page)
	}
	if r.Order == NewestFirst {
		step = -1
	}
	if w.next != "" {
		r.After, r.Before = w.next, ""
		if step < 0 {
			r.After, r.Before = "", w.next
		}
	}
	w.page = nil
	more := false
	for i := w.at + step; i >= 0 && i < len(m.messages); i += step {
		if message := &m.messages[i]; message.gone || !w.matches(message) {
			continue
		}
		if len(w.page) == r.Limit {
			more = true
			break
		}
		w.page = append(w.page, i)
	}
	answer := mustPull(m.t, m.Service, phone, r)
	var expected []string
	for _, i := range w.page {
		expected = append(expected, m.messages[i].id)
	}
	if got := messageIDs(answer.Messages); !slices.Equal(got, expected) || answer.More != more || (answer.Next == "") != (len(expected) == 0) {
		m.t.Errorf("%+v: got %v, more %t\nexpected %v, more %t", r, got, answer.More, expected, more)
	}
	if n := len(w.page); n > 0 {
		w.at = w.page[n-1]
		w.given = append(slices.Clone(w.given), w.page...)
	}
	w.next = answer.Next
}

// read marks messages as read, and counts those that were not.
func (m *model) read(indexes []int) (n int) {
	for _, i := range indexes {
		if !m.messages[i].gone {
			m.messages[i].gone = true
			n++
		}
	}
	return n
}

// acknowledge acknowledges a selection or an id.
func (m *model) acknowledge() string {
	i := m.any()
	if i < 0 {
		return "nothing"
	}
	r, meant := AckRequest{IDs: []string{m.messages[i].id}}, []int{i}
	if m.r.IntN(3) == 0 {
		r, meant = AckRequest{Sender: m.messages[i].sender, Topic: m.messages[i].topic}, nil
		for j, message := range m.messages {
			if message.sender == r.Sender && message.topic == r.Topic {
				meant = append(meant, j)
			}
		}
	}
	if got, expected := m.ack(phone, r), m.read(meant); got != expected {
		m.t.Errorf("%+v acknowledges %d, expected %d", r, got, expected)
	}
	return "acknowledged"
}

// acknowledgeWalk acknowledges all that a walk has given, and ends it.
func (m *model) acknowledgeWalk() string {
	if len(m.walks) == 0 {
		return "nothing"
	}
	i := m.r.IntN(len(m.walks))
	w := m.walks[i]
	m.walks = slices.Delete(m.walks, i, i+1)
	if w.next == "" {
		return "nothing"
	}
	r := AckRequest{Through: w.next, Sender: w.request.Sender, Topic: w.request.Topic}
	if got, expected := m.ack(phone, r), m.read(w.given); got != expected {
		m.t.Errorf("%+v of %+v acknowledges %d, expected %d", r, w.request, got, expected)
	}
	return "acknowledged a walk"
}
