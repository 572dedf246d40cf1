package pull

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"strings"

	"github.com/vmihailenco/msgpack/v5"
)

// encoding is how requests and answers are written.
type encoding byte

const (
	asJSON encoding = iota
	asMsgpack
)

// The content types of answers.
const (
	TypeJSON    = "application/json"
	TypeMsgpack = "application/msgpack"
)

func (enc encoding) contentType() string {
	if enc == asMsgpack {
		return TypeMsgpack
	}
	return TypeJSON
}

// encodingOf is that of a request. JSON begins with none of the bytes with which
// msgpack begins a map.
func encodingOf(contentType string, request []byte) encoding {
	switch t := mediaType(contentType); {
	case isMsgpack(t):
		return asMsgpack
	case t == TypeJSON:
		return asJSON
	}
	if len(request) > 0 && beginsMap(request[0]) {
		return asMsgpack
	}
	return asJSON
}

// IsMsgpack reports whether a content type is one of those by which msgpack goes.
func IsMsgpack(contentType string) bool { return isMsgpack(mediaType(contentType)) }

func isMsgpack(mediaType string) bool {
	switch mediaType {
	case TypeMsgpack, "application/x-msgpack", "application/vnd.msgpack":
		return true
	}
	return false
}

// mediaType returns a content type without its parameters, in lower case.
func mediaType(contentType string) string {
	if t, _, err := mime.ParseMediaType(contentType); err == nil || t != "" {
		return t
	}
	return strings.ToLower(contentType)
}

// encode fails only by a fault of the program.
func (enc encoding) encode(answer any) ([]byte, error) {
	var b bytes.Buffer
	if enc == asMsgpack {
		e := msgpack.GetEncoder()
		defer msgpack.PutEncoder(e)
		e.Reset(&b)
		e.UseCompactInts(true)
		if err := e.Encode(answer); err != nil {
			return nil, fmt.Errorf("encode an answer: %w", err)
		}
		return b.Bytes(), nil
	}
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // the size of an answer is counted without that
	if err := e.Encode(answer); err != nil {
		return nil, fmt.Errorf("encode an answer: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// encodeError is encode for an answer that can always be encoded.
func (enc encoding) encodeError(told *Error) []byte {
	b, err := enc.encode(ErrorAnswer{told})
	if err != nil {
		return nil
	}
	return b
}
