package hooks

import (
	"context"
	"errors"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// verdict is what a publisher is told about one message.
type verdict struct {
	code packets.Code // of PUBACK or PUBREC, or of DISCONNECT if cut
	cut  bool         // no acknowledgement: end the connection instead
}

// judge decides what the publisher of a QoS 1 or 2 message is told, from what
// the store said about it.
//
// Before MQTT 5 an acknowledgement can only mean success. So a message that was
// not stored is not acknowledged, and the connection ends: the publisher still
// has the message and sends it again [MQTT-4.4.0-1]. The same holds in every
// version if the server is what ends, if another connection has the session, or
// if nobody knows whether the message is stored.
//
// 0x95, packet too large, is not a code that PUBACK has; a message that the
// store will never take is refused with 0x83.
func judge(receipt inbox.Receipt, err error, v5 bool) verdict {
	switch {
	case err == nil && v5 && receipt.Matched == 0 && !receipt.Duplicate:
		return verdict{code: packets.CodeNoMatchingSubscribers}
	case err == nil:
		return verdict{}
	case errors.Is(err, inbox.ErrClosed), errors.Is(err, context.Canceled):
		return verdict{code: packets.ErrServerShuttingDown, cut: true}
	case errors.Is(err, inbox.ErrFenced):
		return verdict{code: packets.ErrSessionTakenOver, cut: true}
	case !v5, errors.Is(err, inbox.ErrUncertain):
		return verdict{code: packets.ErrUnspecifiedError, cut: true}
	case errors.Is(err, inbox.ErrFull):
		return verdict{code: packets.ErrQuotaExceeded}
	case errors.Is(err, inbox.ErrTooLarge):
		return verdict{code: packets.ErrImplementationSpecificError}
	}
	return verdict{code: packets.ErrUnspecifiedError}
}

// refuse is the verdict about a message that is not given to the store.
func refuse(code packets.Code, v5 bool) verdict {
	return verdict{code: code, cut: !v5}
}
