package pull

import (
	"encoding/base64"

	"github.com/vmihailenco/msgpack/v5"
)

// base64Text is bytes that are base64 in msgpack, as []byte is in JSON.
type base64Text []byte

// EncodeMsgpack implements [msgpack.CustomEncoder].
func (t base64Text) EncodeMsgpack(enc *msgpack.Encoder) error {
	return enc.EncodeString(base64.StdEncoding.EncodeToString(t))
}

// DecodeMsgpack implements [msgpack.CustomDecoder].
func (t *base64Text) DecodeMsgpack(dec *msgpack.Decoder) error {
	s, err := dec.DecodeString()
	if err != nil {
		return err
	}
	*t, err = base64.StdEncoding.DecodeString(s)
	return err
}
