package pull

import (
	"bytes"
	"errors"
	"io"
	"math"
	"unicode/utf8"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// beginsMap reports whether c begins a map in msgpack.
func beginsMap(c byte) bool {
	return msgpcode.IsFixedMap(c) || c == msgpcode.Map16 || c == msgpcode.Map32
}

// decodeMsgpack reads a map of texts to what fields have. It goes no deeper than
// they do, whatever the request is.
func decodeMsgpack(request []byte) (map[string]any, error) {
	if !beginsMap(request[0]) {
		return nil, badRequest("a request is a msgpack map")
	}
	rest := bytes.NewReader(request)
	at := func() int { return len(request) - rest.Len() }
	dec := msgpack.NewDecoder(rest)
	n, err := dec.DecodeMapLen()
	if err != nil {
		return nil, msgpackError(err, at())
	}
	values := map[string]any{}
	for range n {
		name, err := msgpackValue(dec, false)
		if err != nil {
			return nil, msgpackError(err, at())
		}
		text, ok := name.(string)
		if !ok {
			return nil, badRequest("the names of fields must be texts, at byte %d", at())
		}
		if values[text], err = msgpackValue(dec, true); err != nil {
			return nil, msgpackError(err, at())
		}
	}
	if rest.Len() > 0 {
		return nil, badRequest("the request goes on behind its map, at byte %d", at())
	}
	return values, nil
}

var errKind = errors.New("no field has a value of this kind")

func msgpackError(err error, at int) *Error {
	if errors.Is(err, errText) {
		return errText
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return badRequest("the request is not msgpack: it ends too early")
	}
	if errors.Is(err, errKind) {
		return badRequest("%v, at byte %d", errKind, at)
	}
	return badRequest("the request is not msgpack, at byte %d", at)
}

func msgpackValue(dec *msgpack.Decoder, lists bool) (any, error) {
	c, err := dec.PeekCode()
	switch {
	case err != nil:
		return nil, err
	case c == msgpcode.Nil:
		return nil, dec.DecodeNil()
	case c == msgpcode.True, c == msgpcode.False:
		return dec.DecodeBool()
	case c == msgpcode.Uint64:
		n, err := dec.DecodeUint64()
		return int64(min(n, math.MaxInt64)), err
	case msgpcode.IsFixedNum(c), c >= msgpcode.Uint8 && c <= msgpcode.Int64:
		return dec.DecodeInt64()
	case c == msgpcode.Float, c == msgpcode.Double:
		return dec.DecodeFloat64()
	case msgpcode.IsString(c), msgpcode.IsBin(c):
		s, err := dec.DecodeString()
		if err == nil && !utf8.ValidString(s) {
			err = errText
		}
		return s, err
	case lists && (msgpcode.IsFixedArray(c) || c == msgpcode.Array16 || c == msgpcode.Array32):
		return msgpackList(dec)
	}
	return nil, errKind
}

func msgpackList(dec *msgpack.Decoder) (any, error) {
	n, err := dec.DecodeArrayLen()
	if err != nil {
		return nil, err
	}
	list := []any{}
	for range n {
		v, err := msgpackValue(dec, false)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}
