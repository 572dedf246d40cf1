package killtest

import (
	"fmt"
	"time"
)

// habit is how a receiver behaves until it is drained.
type habit struct {
	id         string
	publishers []int // it subscribes to their topics
	version    byte
	window     uint16 // Receive Maximum (MQTT 5); 0 for none

	stay     time.Duration // length of a link; 0 until it breaks
	away     time.Duration // between two links; less than 0: until the end
	farewell bool          // links end with DISCONNECT
	takeover bool          // the next link comes before the one before has ended
	delay    time.Duration // before a batch of acknowledgements
	deaf     bool          // reads nothing but answers to its own requests
	echo     bool          // publishes with the packet ids that it receives
}

// residents are the receivers that subscribe before the load begins. The
// topic after those of the publishers is the echo's.
func residents(publishers int) []habit {
	all := make([]int, publishers+1)
	for i := range all {
		all[i] = i
	}
	return []habit{
		{id: "online", publishers: all, version: 4},
		{id: "online-5", publishers: all, version: 5, window: 100},
		{id: "slow", publishers: all, version: 5, window: 10, delay: 5 * time.Millisecond},
		{id: "offline", publishers: all, version: 4, stay: 30 * time.Millisecond, away: -1},
		{id: "visitor", publishers: all[:1], version: 4, stay: 150 * time.Millisecond, away: 400 * time.Millisecond, farewell: true},
		{id: "broken", publishers: all, version: 5, window: 20, stay: 100 * time.Millisecond, away: 100 * time.Millisecond},
		{id: "takeover", publishers: all, version: 5, window: 50, stay: 60 * time.Millisecond, takeover: true},
		{id: "deaf", publishers: all[1:2], version: 4, stay: 700 * time.Millisecond, deaf: true},
		{id: "echo", publishers: all[:1], version: 4, echo: true},
	}
}

// latecomer subscribes for the first time in the middle of a round, and leaves.
func latecomer(round int) habit {
	return habit{id: fmt.Sprintf("late-%d", round), publishers: []int{round % 2}, version: 4, stay: time.Millisecond, away: -1}
}
