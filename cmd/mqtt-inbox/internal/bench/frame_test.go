package bench

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

func TestPublishFrameReadsBack(t *testing.T) {
	for _, size := range []int{stampSize, 256, 20_000} {
		out := appendPublish(nil, publishHead("a/b", size), 777, 3, 1<<40, newFiller(size))
		out = append(out, kindPingreq, 0)
		r := bufio.NewReaderSize(iotest.OneByteReader(bytes.NewReader(out)), bufferSize)
		first, body, err := readPacket(r)
		if err != nil {
			t.Fatal(err)
		}
		d, err := parsePublish(first, body)
		if err != nil {
			t.Fatal(err)
		}
		if string(d.topic) != "a/b" || d.qos != 1 || d.packetID != 777 || d.publisher != 3 || d.number != 1<<40 || len(d.payload) != size {
			t.Errorf("size %d: read back %q, %+v", size, d.topic, d)
		}
		if first, _, err := readPacket(r); err != nil || first != kindPingreq {
			t.Errorf("size %d: the next packet begins with %#x, %v", size, first, err)
		}
		if _, _, err := readPacket(r); !errors.Is(err, io.EOF) {
			t.Errorf("size %d: at the end: %v", size, err)
		}
	}
}

func TestMalformedPackets(t *testing.T) {
	if _, _, err := readPacket(bufio.NewReader(bytes.NewReader([]byte{0x30, 0xFF, 0xFF, 0xFF, 0xFF, 1}))); !errors.Is(err, errMalformed) {
		t.Errorf("a length of five bytes: %v", err)
	}
	for _, body := range []string{"", "\x00", "\x00\x05abc", "\x00\x01a\x00"} {
		if _, err := parsePublish(kindPublish|0x02, []byte(body)); !errors.Is(err, errMalformed) {
			t.Errorf("PUBLISH %q: %v", body, err)
		}
	}
}

func TestIsBuffered(t *testing.T) {
	whole := append([]byte{kindPuback, 2, 0, 1}, kindPuback, 2, 0)
	r := bufio.NewReader(bytes.NewReader(whole))
	if isBuffered(r) {
		t.Error("nothing has been read yet")
	}
	if _, _, err := readPacket(r); err != nil {
		t.Fatal(err)
	}
	if isBuffered(r) {
		t.Error("three bytes of four count as a packet")
	}
}

func BenchmarkAppendPublish(b *testing.B) {
	head, filler := publishHead("bench/receiver/1", 256), newFiller(256)
	var out []byte
	for b.Loop() {
		out = appendPublish(out[:0], head, 1, 1, 1, filler)
	}
	b.SetBytes(int64(len(out)))
}
