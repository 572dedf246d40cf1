package pull

import (
	"fmt"
	"math"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Asker is who asks. Whoever calls the service has made sure of it.
type Asker struct {
	Receiver inbox.Receiver // whose inbox it is
	User     string         // the user name, "" for none
	Operator bool           // reads and deletes whatever there is in history

	// MaxAnswer is how many bytes an encoded answer may have, 0 for no bound. Pages are
	// made smaller to fit. With less than [MinAnswer] summaries and pages are refused.
	MaxAnswer int

	// MaxPage bounds the bytes of the messages in a page, whatever is asked for; 0 for no
	// bound. Unlike MaxAnswer it never has one left out, or cut short.
	MaxPage int

	// Acknowledged is called, if it is not nil, when a request of the asker has made
	// messages read that were unread. It must be quick.
	Acknowledged func()
}

// MinAnswer is the smallest bound for answers in which there is room for a message.
const MinAnswer = 1024

// Name is by what name messages of the asker are sent, see [inbox.Envelope.Sender].
func (a Asker) Name() string {
	if a.User != "" {
		return a.User
	}
	return string(a.Receiver)
}

// sent reports whether the asker has sent a message. One without a user name is not
// taken for the user of the same name as its client id.
func (a Asker) sent(e *inbox.Envelope) bool {
	if a.User != "" {
		return e.User == a.User
	}
	return e.User == "" && e.Client == string(a.Receiver)
}

// room is what an answer has room for beside a fixed part.
func (a Asker) room(fixed int) int {
	if a.MaxAnswer == 0 {
		return math.MaxInt32
	}
	return a.MaxAnswer - fixed
}

// check refuses an asker that takes no answers in which there is room for something.
func (a Asker) check() error {
	if a.MaxAnswer != 0 && a.MaxAnswer < MinAnswer {
		return &Error{CodeTooLarge, fmt.Sprintf("this answer may need %d bytes, and the asker takes less", MinAnswer)}
	}
	return nil
}
