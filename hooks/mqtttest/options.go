package mqtttest

import (
	"github.com/mochi-mqtt/server/v2/packets"
)

// Options say how a client introduces itself. The zero value is an MQTT 3.1.1
// client that wants its session kept, without keep alive.
type Options struct {
	ClientID  string
	Version   byte // 3, 4 or 5; 0 is 4
	Clean     bool // Clean Session, Clean Start
	KeepAlive uint16

	Username string
	Password string // sent if Username or it is not empty

	Will *Will

	// MQTT 5 only.
	SessionExpiry     uint32 // seconds; 0 ends the session with the link
	ReceiveMaximum    uint16 // 0 is absent, so 65,535
	MaxPacketSize     uint32 // 0 is absent, so no limit
	TopicAliasMaximum uint16
	UserProperties    []packets.UserProperty

	// ManualAck leaves received QoS 1 and 2 messages unacknowledged until the
	// test calls Ack and Complete. Otherwise they are acknowledged as they arrive,
	// and a PUBREL is answered and not shown.
	ManualAck bool

	// ManualRelease shows the PUBREC for a published QoS 2 message to the test,
	// which then calls Release. Otherwise it is answered and not shown.
	ManualRelease bool

	// Frozen starts the client as if Freeze had been called after CONNACK.
	Frozen bool
}

// Will is the message that the broker publishes when the link breaks.
type Will struct {
	Topic   string
	Payload string
	QoS     byte
	Retain  bool

	// MQTT 5 only.
	Delay      uint32 // seconds
	Expiry     uint32 // seconds; 0 for never
	Properties packets.Properties
}

// packet returns the CONNECT of these options.
func (o Options) packet() packets.Packet {
	pk := packets.Packet{
		FixedHeader:     packets.FixedHeader{Type: packets.Connect},
		ProtocolVersion: o.version(),
		Connect: packets.ConnectParams{
			ProtocolName:     []byte("MQTT"),
			ClientIdentifier: o.ClientID,
			Clean:            o.Clean,
			Keepalive:        o.KeepAlive,
		},
	}
	if o.version() == 3 {
		pk.Connect.ProtocolName = []byte("MQIsdp")
	}
	if o.Username != "" || o.Password != "" {
		pk.Connect.UsernameFlag, pk.Connect.Username = true, []byte(o.Username)
		pk.Connect.PasswordFlag, pk.Connect.Password = true, []byte(o.Password)
	}
	if w := o.Will; w != nil {
		pk.Connect.WillFlag = true
		pk.Connect.WillTopic, pk.Connect.WillPayload = w.Topic, []byte(w.Payload)
		pk.Connect.WillQos, pk.Connect.WillRetain = w.QoS, w.Retain
		pk.Connect.WillProperties = w.Properties
		pk.Connect.WillProperties.WillDelayInterval, pk.Connect.WillProperties.MessageExpiryInterval = w.Delay, w.Expiry
	}
	pk.Properties = packets.Properties{
		SessionExpiryInterval:     o.SessionExpiry,
		SessionExpiryIntervalFlag: o.SessionExpiry != 0,
		ReceiveMaximum:            o.ReceiveMaximum,
		MaximumPacketSize:         o.MaxPacketSize,
		TopicAliasMaximum:         o.TopicAliasMaximum,
		User:                      o.UserProperties,
	}
	return pk
}

func (o Options) version() byte {
	if o.Version == 0 {
		return 4
	}
	return o.Version
}
