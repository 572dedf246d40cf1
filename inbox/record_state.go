package inbox

import (
	"cmp"
	"fmt"
	"math"

	"github.com/vmihailenco/msgpack/v5"
)

// The stored form of a delivery state is one msgpack array. It is written for
// every few acknowledgements, so it is small: 3 bytes for a delivery that
// follows the one before, in position and packet id.
//
//	0  version        int    2
//	1  sent           int
//	2  last id        int
//	3  open           array  of three values for each delivery:
//	     position     int    above the one before; the first: below sent
//	     packet id    int    above or, negative, below the one before; the first: itself
//	     stage        int    1 of QoS 1, 2 of QoS 2, 3 released, 0 not known
//	4  resting ids    array  of int
//	5  releasing ids  array  of int
//
// In version 1 there is no field 5, and for the stage a bool: whether it is released.
// Later versions of the product may append fields, which are passed over here.
// The version goes up only when what is above changes.
const (
	stateVersion = 2
	stateFields  = 6

	firstStateVersion = 1
	firstStateFields  = 5
)

// stageReleased is the stage of a delivery that is released. Others have their QoS.
const stageReleased = 3

func stage(d Delivery) byte {
	if d.Released {
		return stageReleased
	}
	return d.QoS
}

// AppendState appends the stored form of s to dst. Open must be ascending and
// not above Sent, as it is in the state of a [Window]. It allocates only if dst
// is too small. Any goroutine may call it.
func AppendState(dst []byte, s State) []byte {
	return appendRecord(dst, func(enc *msgpack.Encoder) error { return encodeState(enc, s) })
}

func encodeState(enc *msgpack.Encoder, s State) error {
	err := cmp.Or(
		enc.EncodeArrayLen(stateFields),
		enc.EncodeUint(stateVersion),
		enc.EncodeUint(uint64(s.Sent)),
		enc.EncodeUint(uint64(s.LastID)),
		enc.EncodeArrayLen(3*len(s.Open)),
	)
	var last Delivery
	for i, d := range s.Open {
		step := d.Position - last.Position
		if i == 0 {
			step = s.Sent - d.Position // small, unlike the position
		}
		err = cmp.Or(err,
			enc.EncodeUint(uint64(step)),
			enc.EncodeInt(int64(d.PacketID)-int64(last.PacketID)),
			enc.EncodeUint(uint64(stage(d))),
		)
		last = d
	}
	return cmp.Or(err, encodeIDs(enc, s.Resting), encodeIDs(enc, s.Releasing))
}

func encodeIDs(enc *msgpack.Encoder, ids []uint16) error {
	err := enc.EncodeArrayLen(len(ids))
	for _, id := range ids {
		err = cmp.Or(err, enc.EncodeUint(uint64(id)))
	}
	return err
}

// ParseState reads what [AppendState] has written and keeps nothing of b. The
// error wraps [ErrDamaged] and names the field, or wraps [ErrNewer].
func ParseState(b []byte) (State, error) {
	r := NewRecordReader(b)
	version, n := r.record(firstStateVersion, stateVersion)
	isFirst, fields := version == firstStateVersion, stateFields
	if isFirst {
		fields = firstStateFields
	}
	if n < fields {
		r.fail("number of fields")
	}
	s := State{
		Sent:   Position(r.Uint("sent", math.MaxUint64)),
		LastID: uint16(r.Uint("last id", MaxWindow)),
	}
	s.Open = r.deliveries(s.Sent, isFirst)
	s.Resting = r.ids("resting ids")
	if !isFirst {
		s.Releasing = r.ids("releasing ids")
	}
	if err := r.End(n > fields); err != nil {
		return State{}, fmt.Errorf("parse state: %w", err)
	}
	return s, nil
}

func (r *RecordReader) deliveries(sent Position, isFirst bool) []Delivery {
	n := r.Array("open")
	if n%3 != 0 || n/3 > MaxWindow {
		r.fail("open")
		return nil
	}
	if n == 0 {
		return nil
	}
	open := make([]Delivery, n/3)
	var last Delivery
	for i := range open {
		step := Position(r.Uint("position", uint64(sent-last.Position)))
		id := int64(last.PacketID) + r.Int("packet id")
		d := Delivery{Position: last.Position + step, PacketID: uint16(id)}
		if isFirst {
			d.setStage(stageOf(r.Bool("released")))
		} else {
			d.setStage(r.Uint("stage", stageReleased))
		}
		if i == 0 {
			d.Position = sent - step
		}
		if d.Position <= last.Position {
			r.fail("position")
		}
		if id < 1 || id > MaxWindow {
			r.fail("packet id")
		}
		if r.err != nil {
			return nil
		}
		open[i], last = d, d
	}
	return open
}

func (d *Delivery) setStage(stage uint64) {
	d.QoS, d.Released = byte(stage), false
	if stage == stageReleased {
		d.QoS, d.Released = 2, true
	}
}

// stageOf is the stage of a delivery of which it is known only whether it is released.
func stageOf(released bool) uint64 {
	if released {
		return stageReleased
	}
	return 0
}

func (r *RecordReader) ids(field string) []uint16 {
	n := r.Array(field)
	if n == 0 {
		return nil
	}
	if n > MaxWindow {
		r.fail(field)
		return nil
	}
	ids := make([]uint16, n)
	for i := range ids {
		ids[i] = uint16(r.Uint(field, MaxWindow))
	}
	return ids
}
