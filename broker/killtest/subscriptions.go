package killtest

import (
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// subscriptions has a client whose link breaks as soon as the broker has
// confirmed what it subscribes to and no longer subscribes to. After the kill
// exactly that holds.
type subscriptions struct{ *run }

func (s *subscriptions) before(t testing.TB, round int) {
	c := s.dial(t, name("subscriber", round), nil)
	c.SubscribeAll(
		packets.Subscription{Filter: topicFor(round, "kept"), Qos: s.QoS},
		packets.Subscription{Filter: topicFor(round, "left"), Qos: s.QoS},
		packets.Subscription{Filter: topicFor(round, "lowered"), Qos: s.QoS},
		packets.Subscription{Filter: topicFor(round, "again"), Qos: s.QoS},
	)
	c.Unsubscribe(topicFor(round, "left"), topicFor(round, "again"))
	c.Subscribe(topicFor(round, "lowered"), 0)
	c.SubscribeAll(packets.Subscription{Filter: topicFor(round, "again"), Qos: s.QoS, Identifier: 7})
	c.Cut()
}

func (s *subscriptions) after(t testing.TB, round int) {
	publisher := s.dial(t, "subject-publisher", nil)
	defer publisher.Disconnect()
	for _, subject := range []string{"left", "kept", "again"} {
		publisher.PublishAndWait(topicFor(round, subject), subject, s.QoS)
	}

	c := s.dial(t, name("subscriber", round), nil)
	defer c.Disconnect()
	if !c.SessionPresent {
		s.ledger.Violate("%s: its session is gone", c.ID)
		return
	}
	publisher.PublishAndWait(topicFor(round, "lowered"), "lowered", s.QoS)
	got := map[string]packets.Packet{}
	for _, pk := range gather(c, 3) {
		if _, again := got[string(pk.Payload)]; again {
			s.ledger.Violate("%s: %s came twice", c.ID, pk.Payload)
		}
		got[string(pk.Payload)] = pk
	}
	for subject, qos := range map[string]byte{"kept": s.QoS, "again": s.QoS, "lowered": 0} {
		pk, ok := got[subject]
		if !ok || pk.FixedHeader.Qos != qos {
			s.ledger.Violate("%s: of %q came %s, want qos %d", c.ID, subject, mqtttest.Describe(pk), qos)
		}
		if identified := len(pk.Properties.SubscriptionIdentifier) == 1; identified != (subject == "again") {
			s.ledger.Violate("%s: %q has the identifiers %d", c.ID, subject, pk.Properties.SubscriptionIdentifier)
		}
		delete(got, subject)
	}
	for subject := range got {
		s.ledger.Violate("%s: got a message for %q", c.ID, subject)
	}
}

func (s *subscriptions) finally(testing.TB) {}

// topicFor is both a filter and the topic that it matches.
func topicFor(round int, subject string) string { return "subject/" + name(subject, round) }
