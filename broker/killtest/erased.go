package killtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// erased has an operator erase a sender before each kill. After it nothing of what that one
// has sent is there, neither for a receiver nor in history, where marks without a name
// are left, and everything of others is.
type erased struct{ *run }

func (x *erased) before(t testing.TB, round int) {
	filter := topicFor(round, "erased")
	receiver := x.dial(t, name("receiver", round), nil)
	receiver.Subscribe(filter, x.QoS)
	receiver.Disconnect()
	gone, other := x.dial(t, name("forgotten", round), nil), x.dial(t, name("remembered", round), nil)
	defer gone.Disconnect()
	defer other.Disconnect()
	gone.PublishAndWait(filter, "secret", x.QoS)
	other.PublishAndWait(filter, "before", x.QoS)
	gone.PublishAndWait(filter, "secret", x.QoS)
	x.erase(t, gone.ID, 2)
	other.PublishAndWait(filter, "behind", x.QoS)
}

// erase is what an operator does.
func (x *erased) erase(t testing.TB, sender string, want int) {
	t.Helper()
	request, err := http.NewRequest(http.MethodDelete, fmt.Sprintf("http://%s/v1/history?sender=%s", x.HTTP, sender), nil)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Timeout: mqtttest.Deadline, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatalf("erase: %v", err)
	}
	defer func() { _ = response.Body.Close() }()
	var answer struct{ Deleted int }
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || answer.Deleted != want {
		t.Errorf("erase %s: %s, %d deleted, want %d: %v", sender, response.Status, answer.Deleted, want, err)
	}
}

func (x *erased) after(t testing.TB, round int) {
	filter := topicFor(round, "erased")
	other := x.dial(t, name("remembered", round), nil)
	defer other.Disconnect()
	other.PublishAndWait(filter, "end", x.QoS)
	x.get(t, name("receiver", round), []string{"before", "behind"})

	var p page
	askFor(t, other, "history", question{Topic: filter, Order: "asc", Limit: 100}, &p)
	var got []string
	for _, m := range p.Messages {
		if m.Deleted == (m.Sender != "") {
			x.ledger.Violate("history after a sender was erased: %+v", m)
		}
		got = append(got, m.Payload)
	}
	if want := []string{"", "before", "", "behind", "end"}; !slices.Equal(got, want) {
		x.ledger.Violate("history of %s: %q, want %q", filter, got, want)
	}
	p = page{}
	if askFor(t, other, "history", question{Sender: name("forgotten", round)}, &p); len(p.Messages) > 0 {
		x.ledger.Violate("history of a sender who was erased: %+v", p.Messages)
	}
}

func (*erased) finally(testing.TB) {}
