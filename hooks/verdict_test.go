package hooks

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

func TestJudge(t *testing.T) {
	matched, unmatched, unknown := inbox.Receipt{Matched: 2}, inbox.Receipt{}, inbox.Receipt{Matched: -1}
	tests := []struct {
		name    string
		receipt inbox.Receipt
		err     error
		v5, v3  verdict
	}{
		{"stored", matched, nil, verdict{}, verdict{}},
		{"matched unknown", unknown, nil, verdict{}, verdict{}},
		{"nobody wants it", unmatched, nil, verdict{code: packets.CodeNoMatchingSubscribers}, verdict{}},
		{"full", unmatched, inbox.ErrFull, verdict{code: packets.ErrQuotaExceeded}, verdict{code: packets.ErrUnspecifiedError, cut: true}},
		{"too large", unmatched, inbox.ErrTooLarge, verdict{code: packets.ErrImplementationSpecificError}, verdict{code: packets.ErrUnspecifiedError, cut: true}},
		{"came before", inbox.Receipt{Duplicate: true}, nil, verdict{}, verdict{}},
		{"taken over", unmatched, inbox.ErrFenced, verdict{code: packets.ErrSessionTakenOver, cut: true}, verdict{code: packets.ErrSessionTakenOver, cut: true}},
		{"uncertain", unmatched, inbox.ErrUncertain, verdict{code: packets.ErrUnspecifiedError, cut: true}, verdict{code: packets.ErrUnspecifiedError, cut: true}},
		{"any other", unmatched, errors.New("disk on fire"), verdict{code: packets.ErrUnspecifiedError}, verdict{code: packets.ErrUnspecifiedError, cut: true}},
		{"store closed", unmatched, inbox.ErrClosed, verdict{code: packets.ErrServerShuttingDown, cut: true}, verdict{code: packets.ErrServerShuttingDown, cut: true}},
		{"link ended", unmatched, context.Canceled, verdict{code: packets.ErrServerShuttingDown, cut: true}, verdict{code: packets.ErrServerShuttingDown, cut: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.err
			if err != nil {
				err = fmt.Errorf("append: %w", err)
			}
			if got := judge(tt.receipt, err, true); got != tt.v5 {
				t.Errorf("MQTT 5: %+v, want %+v", got, tt.v5)
			}
			if got := judge(tt.receipt, err, false); got != tt.v3 {
				t.Errorf("MQTT 3.1.1: %+v, want %+v", got, tt.v3)
			}
		})
	}
}

// PUBACK and PUBREC have nine reason codes, and a client may end the connection
// over any other.
func TestJudgeUsesCodesOfPuback(t *testing.T) {
	valid := map[byte]bool{0x00: true, 0x10: true, 0x80: true, 0x83: true, 0x87: true, 0x90: true, 0x91: true, 0x97: true, 0x99: true}
	for _, err := range []error{nil, inbox.ErrFull, inbox.ErrTooLarge, inbox.ErrUncertain, errors.New("other")} {
		if v := judge(inbox.Receipt{}, err, true); !v.cut && !valid[v.code.Code] {
			t.Errorf("%v is told as %#x, which PUBACK does not have", err, v.code.Code)
		}
	}
}

func TestCheckFilter(t *testing.T) {
	invalid := packets.ErrTopicFilterInvalid
	tests := []struct {
		filter string
		want   packets.Code
	}{
		{"a", packets.CodeSuccess}, {"#", packets.CodeSuccess}, {"+", packets.CodeSuccess}, {"a/+/#", packets.CodeSuccess},
		{"/", packets.CodeSuccess}, {"+/+", packets.CodeSuccess}, {"$SYS/#", packets.CodeSuccess}, {"a//b", packets.CodeSuccess},
		{"", invalid}, {"a#", invalid}, {"a/b#", invalid}, {"#/a", invalid}, {"a+", invalid}, {"+a/b", invalid}, {"++", invalid}, {"a/##", invalid},
		{"$share/g/a", packets.CodeSuccess}, {"$share/g//", packets.CodeSuccess}, {"$share/g/a/+/#", packets.CodeSuccess},
		{"$share", invalid}, {"$share/g", invalid}, {"$share/g/", invalid}, {"$share//a", invalid}, {"$share/+/a", invalid},
		{"$share/g#/a", invalid}, {"$share/g/a#", invalid}, {"$share/g/#/a", invalid}, {"$SHARE/g/a", invalid}, {"$share/g/$share/h/a", invalid},
	}
	for _, tt := range tests {
		if got := checkFilter(tt.filter); got != tt.want {
			t.Errorf("checkFilter(%q) = %v, want %v", tt.filter, got, tt.want)
		}
	}
}
