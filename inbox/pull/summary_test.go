package pull

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestSummaryCountsBySenderAndTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, keepAll)
		h.join("phone", "#")
		h.send(2, "ben", "chat/1", 0)
		time.Sleep(time.Second)
		eve := h.send(3, "eve", "chat/1", 0)
		time.Sleep(time.Second)
		ben := h.send(1, "ben", "news", 0)
		h.send(5, "ann", "news", 0) // her own

		answer, err := h.Summary(t.Context(), phone, SummaryRequest{})
		if err != nil {
			t.Fatal(err)
		}
		type line struct {
			name           string
			messages       int64
			oldest, newest int // seconds
		}
		lines := func(tallies []Tally) (lines []line) {
			begin := answer.Topics[1].Oldest.Time
			for _, tally := range tallies {
				lines = append(lines, line{
					tally.Sender + tally.Topic, tally.Messages,
					int(tally.Oldest.Time-begin) / 1000, int(tally.Newest.Time-begin) / 1000,
				})
			}
			return lines
		}
		if got, expected := lines(answer.Topics), []line{{"news", 1, 2, 2}, {"chat/1", 5, 0, 1}}; !slices.Equal(got, expected) {
			t.Errorf("topics: %v, expected %v", got, expected)
		}
		if got, expected := lines(answer.Senders), []line{{"ben", 3, 0, 2}, {"eve", 3, 1, 1}}; !slices.Equal(got, expected) {
			t.Errorf("senders: %v, expected %v", got, expected)
		}
		if answer.Messages != 6 || answer.Bytes != answer.Topics[0].Bytes+answer.Topics[1].Bytes || answer.AtLeast || answer.More || answer.Next != "" {
			t.Errorf("got %+v", answer)
		}
		if answer.Senders[0].Newest.ID != ben[0] || answer.Senders[1].Oldest.ID != eve[0] {
			t.Errorf("the marks are %+v and %+v", answer.Senders[0].Newest, answer.Senders[1].Oldest)
		}
	})
}

// A summary in parts is one summary, whatever comes meanwhile.
func TestSummaryComesInParts(t *testing.T) {
	h := newHouse(t, keepAll)
	h.join("phone", "#")
	for i := range 30 {
		h.send(1, fmt.Sprintf("user%d", i), fmt.Sprintf("chat/%d", i%7), 0)
	}
	h.send(1, "long", strings.Repeat("t", 3000), 0)
	for _, maxAnswer := range []int{0, MinAnswer, 1500, 4000} {
		for _, enc := range []encoding{asJSON, asMsgpack} {
			a := phone
			a.MaxAnswer = maxAnswer
			senders, topics := map[string]int64{}, map[string]int64{}
			r, parts, position, messages := SummaryRequest{Limit: 9}, 0, "", int64(0)
			for {
				request, err := enc.encode(r)
				if err != nil {
					t.Fatal(err)
				}
				b, _ := h.Do(t.Context(), a, OpSummary, request, "")
				var answer SummaryAnswer
				if err := decode(enc, b, &answer); err != nil || maxAnswer > 0 && len(b) > maxAnswer {
					t.Fatalf("%d bytes, %v", len(b), err)
				}
				if parts++; parts == 1 {
					position, messages = answer.Position, answer.Messages
				}
				if answer.Position != position || answer.Messages != messages || answer.More != (answer.Next != "") {
					t.Fatalf("part %d is of %d messages, expected %d", parts, answer.Messages, messages)
				}
				for _, tally := range answer.Senders {
					senders[tally.Sender] += tally.Messages
				}
				for _, tally := range answer.Topics {
					topics[tally.Topic] += tally.Messages
				}
				if r.Next = answer.Next; r.Next == "" {
					break
				}
				h.send(1, "later", "chat/later", 0)
			}
			total := func(counts map[string]int64) (n int64) {
				for _, c := range counts {
					n += c
				}
				return n
			}
			if total(senders) != messages || total(topics) != messages || parts < 4 {
				t.Errorf("answers of %d: %d parts, %v, %v", maxAnswer, parts, senders, topics)
			}
			if _, named := topics[strings.Repeat("t", 3000)]; named != (maxAnswer == 0 || maxAnswer == 4000) {
				t.Errorf("answers of %d: the long topic is named: %t", maxAnswer, named)
			}
			h.ack(phone, AckRequest{Sender: "later"})
		}
	}
	_, err := h.Summary(t.Context(), phone, SummaryRequest{Next: "x"})
	wantCode(t, err, CodeBadCursor)
	answer, err := h.Summary(t.Context(), phone, SummaryRequest{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	h.join("tablet", "#")
	_, err = h.Summary(t.Context(), Asker{Receiver: "tablet"}, SummaryRequest{Next: answer.Next})
	wantCode(t, err, CodeBadCursor)
	_, err = h.Summary(t.Context(), phone, SummaryRequest{Next: answer.Position})
	wantCode(t, err, CodeBadCursor)
	_, err = h.Summary(t.Context(), Asker{Receiver: "nobody"}, SummaryRequest{})
	wantCode(t, err, CodeNoSession)
	_, err = h.Summary(t.Context(), Asker{Receiver: "phone", MaxAnswer: 5}, SummaryRequest{})
	wantCode(t, err, CodeTooLarge)
}
