package hooks

import (
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"
)

// What the MQTT library would leave out of a message of QoS 0 goes through the
// store.
func TestStoresPlainWhatTheLibraryWouldLeaveOut(t *testing.T) {
	const expiry = propertySet(1 << packets.PropMessageExpiryInterval)
	tests := []struct {
		name       string
		properties packets.Properties
		seen       propertySet
		want       bool
	}{
		{"nothing", packets.Properties{}, 0, false},
		{"correlation data", packets.Properties{CorrelationData: []byte{1}}, 0, false},
		{"empty correlation data", packets.Properties{CorrelationData: []byte{}}, 0, true},
		{"expiry", packets.Properties{MessageExpiryInterval: 1}, expiry, false},
		{"expiry of 0", packets.Properties{}, expiry, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := &link{in: inbound{seen: tt.seen}}
			pk := packets.Packet{TopicName: "a", Properties: tt.properties}
			if got := (&Hook{}).storesPlain(l, &pk); got != tt.want {
				t.Errorf("through the store: %v, want %v", got, tt.want)
			}
		})
	}
}
