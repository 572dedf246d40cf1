package killtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// asker asks by $inbox/ over one link, one request at a time. It belongs to one goroutine.
type asker struct {
	run   *run
	conn  *conn
	other func(packets.Packet) error // takes what comes before the answer
	asked time.Time                  // when the latest request was sent
}

// question is what the requests of this package have in common.
type question struct {
	Limit   int      `json:"limit,omitempty"`
	Order   string   `json:"order,omitempty"`
	Sender  string   `json:"sender,omitempty"`
	Topic   string   `json:"topic,omitempty"`
	After   string   `json:"after,omitempty"`
	Before  string   `json:"before,omitempty"`
	Ack     *bool    `json:"ack,omitempty"`
	IDs     []string `json:"ids,omitempty"`
	Through string   `json:"through,omitempty"`
	All     bool     `json:"all,omitempty"`
	ID      string   `json:"id,omitempty"`
}

// walkOn has the question ask for the page behind a cursor.
func (q *question) walkOn(next string) {
	if q.Order == "asc" {
		q.After = next
	} else {
		q.Before = next
	}
}

// page is an answer to pull and history.
type page struct {
	Messages []pulled `json:"messages"`
	Next     string   `json:"next"`
}

// pulled is a message as it is answered.
type pulled struct {
	ID      string `json:"id"`
	Topic   string `json:"topic"`
	Sender  string `json:"sender"`
	Payload string `json:"payload"`
	Deleted bool   `json:"deleted"`
}

// refusal is the code of an error that was answered.
type refusal string

func (r refusal) Error() string { return "answered: " + string(r) }

const (
	busy        refusal = "busy"
	unavailable refusal = "unavailable"
)

// ask sends a request and puts the answer into answer. It asks again while the broker
// is busy.
func (a *asker) ask(operation string, q question, answer any) error {
	for {
		err := a.askOnce(operation, q, answer)
		if !errors.Is(err, busy) || a.run.life.Err() != nil {
			return err
		}
		pause(a.run.life, redial)
	}
}

func (a *asker) askOnce(operation string, q question, answer any) error {
	payload, err := json.Marshal(q)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	request := packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Publish},
		TopicName:   "$inbox/" + operation, Payload: payload,
	}
	a.asked = time.Now()
	if err := a.conn.Write(request); err != nil {
		return err
	}
	for {
		pk, err := a.conn.ReadWithin(mqtttest.Deadline)
		if err != nil {
			return err
		}
		if pk.FixedHeader.Type != packets.Publish || pk.TopicName != "$inbox/"+operation+"/answer" {
			if err := a.other(pk); err != nil {
				return err
			}
			continue
		}
		var refused struct {
			Error struct{ Code refusal }
		}
		if err := json.Unmarshal(pk.Payload, &refused); err != nil {
			return refusal(fmt.Sprintf("%q: %v", pk.Payload, err))
		}
		if refused.Error.Code != "" {
			return refused.Error.Code
		}
		return json.Unmarshal(pk.Payload, answer)
	}
}

// walk asks for page after page, up to the empty one at the end.
func (a *asker) walk(operation string, q question, take func(page) error) error {
	for {
		var p page
		if err := a.ask(operation, q, &p); err != nil {
			return err
		}
		if err := take(p); err != nil || p.Next == "" {
			return err
		}
		q.walkOn(p.Next)
	}
}
