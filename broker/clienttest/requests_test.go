package clienttest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/broker/brokertest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// request runs mosquitto_rr, which subscribes to where the answer comes, publishes
// the request and prints the answer, and decodes it.
func (m mosquitto) request(t *testing.T, b *brokertest.Broker, client, operation, request string, answer any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	topic := "$inbox/" + operation
	args := append([]string{"-i", client, "-c", "-t", topic, "-e", topic + "/answer", "-m", request, "-W", seconds(deadline)}, m...)
	out, err := m.run(ctx, visit{broker: b, qos: 1}, nil, 0, "mosquitto_rr", args...)
	if err == nil {
		err = json.Unmarshal([]byte(out), answer)
	}
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", operation, request, err, out)
	}
}

// The session of the README: alice has her inbox wait, bob writes to her, and she
// asks what there is, pulls it by pages, over a kill of the broker, reads history, and goes
// back to being sent what waits.
func TestMosquittoAsksItsInbox(t *testing.T) {
	brokertest.NeedTools(t, "mosquitto_pub", "mosquitto_sub", "mosquitto_rr")
	for name, m := range map[string]mosquitto{
		"MQTT 3.1.1": {"-V", "mqttv311"},
		"MQTT 5":     {"-V", "mqttv5", "-x", fmt.Sprint(sessionExpiry)},
	} {
		t.Run(name, func(t *testing.T) {
			b := brokertest.Start(t, brokertest.Options{Args: []string{"--history", "chat/#"}})
			ask := func(operation, request string, answer any) {
				t.Helper()
				m.request(t, b, "alice", operation, request, answer)
			}
			sub := append([]string{"-i", "alice", "-c", "-t", "chat/alice", "-E"}, m...)
			if _, err := m.run(t.Context(), visit{broker: b, qos: 1}, nil, 0, "mosquitto_sub", sub...); err != nil {
				t.Fatal(err)
			}
			var mode pull.ModeAnswer
			if ask("mode", `{"mode":"pull"}`, &mode); mode.Mode != "pull" {
				t.Errorf("mode %+v", mode)
			}
			var want []string
			for i := range 1000 {
				want = append(want, fmt.Sprint("m", i+1))
			}
			pub := append([]string{"-i", "bob", "-t", "chat/alice", "-l"}, m[:2]...)
			if _, err := m.run(t.Context(), visit{broker: b, qos: 1}, []byte(strings.Join(want, "\n")+"\n"), 0, "mosquitto_pub", pub...); err != nil {
				t.Fatal(err)
			}

			var summary pull.SummaryAnswer
			if ask("summary", "{}", &summary); summary.Messages != 1000 || len(summary.Senders) != 1 || summary.Senders[0].Sender != "bob" {
				t.Errorf("summary %+v", summary)
			}
			var got []string
			for page, i := (pull.MessagesAnswer{}), 0; ; i++ {
				request := fmt.Sprintf(`{"sender":"bob","limit":200,"after":%q}`, page.Next)
				if i == 0 {
					request = `{"sender":"bob","limit":200}`
				}
				if i == 3 {
					b.Kill()
					b.Restart()
				}
				page = pull.MessagesAnswer{}
				ask("pull", request, &page)
				for _, message := range page.Messages {
					got = append(got, message.Payload)
				}
				if len(page.Messages) == 0 {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("pulled %d messages, not m1 to m1000 in order: %.200q", len(got), got)
			}
			var ack pull.AckAnswer
			if ask("ack", `{"all":true}`, &ack); ack.Acknowledged != 0 {
				t.Errorf("%d were unread at the end", ack.Acknowledged)
			}
			var failed pull.ErrorAnswer
			if ask("steal", "{}", &failed); failed.Error == nil || failed.Error.Code != pull.CodeUnknownOperation {
				t.Errorf("no such operation: %+v", failed.Error)
			}

			var history pull.MessagesAnswer
			m.request(t, b, "new-phone", "history", `{"topic":"chat/alice","limit":3}`, &history)
			if len(history.Messages) != 3 || history.Messages[0].Payload != "m1000" || !history.More {
				t.Errorf("history %+v", history)
			}

			if ask("mode", `{"mode":"push"}`, &mode); mode.Mode != "push" {
				t.Errorf("mode %+v", mode)
			}
			pub = append([]string{"-i", "bob", "-t", "chat/alice", "-m", "by itself"}, m[:2]...)
			if _, err := m.run(t.Context(), visit{broker: b, qos: 1}, nil, 0, "mosquitto_pub", pub...); err != nil {
				t.Fatal(err)
			}
			sub = append([]string{"-i", "alice", "-c", "-t", "chat/alice", "-C", "1"}, m...)
			out, err := m.run(t.Context(), visit{broker: b, qos: 1}, nil, 0, "mosquitto_sub", sub...)
			if err != nil || out != "by itself\n" {
				t.Errorf("in push mode again she got %q: %v", out, err)
			}
		})
	}
}
