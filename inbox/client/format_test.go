package client

import (
	"bytes"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"
)

// The bytes of both files are those that docs/format.md describes: what an earlier
// version has written must be read.
func TestFilesAreAsDocumented(t *testing.T) {
	p := &paho.Publish{Topic: "a/b", QoS: 1, Retain: true, Payload: []byte("hi"), Properties: &paho.PublishProperties{
		ContentType: "t", User: paho.UserProperties{{Key: PropertyName, Value: "n"}},
	}}
	got, err := encodeWaiting(p, time.UnixMilli(0x0102030405))
	if err != nil {
		t.Fatal(err)
	}
	const want = "01" + "57781ce0" + "0000000102030405" +
		"331a" + "0003612f62" + "0000" + "10" + "03000174" + "2600066d73672d696400016e" + "6869"
	if hex.EncodeToString(got) != want {
		t.Errorf("a message is written as\n%x, want\n%s", got, want)
	}
	again, added, err := decodeWaiting(got)
	if err != nil || added.UnixMilli() != 0x0102030405 || again.Topic != "a/b" || again.Properties.User.Get(PropertyName) != "n" {
		t.Errorf("read as %v of %v, %v", again, added, err)
	}

	path := filepath.Join(t.TempDir(), "seen")
	f, err := newSeenFile(path, []seenKey{keyOf("a")})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.append([]seenKey{keyOf("b")}); err != nil {
		t.Fatal(err)
	}
	if err := f.close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	const wantSeen = "6d71696e73656501" + "ca978112ca1bbdcafac231b39a23dc4d" + "a47748bf" + "3e23e8160039594a33894f6564e1b134" + "67c533bc"
	if err != nil || hex.EncodeToString(file) != wantSeen {
		t.Errorf("ids are written as\n%x, %v; want\n%s", file, err, wantSeen)
	}
}

// Whatever a file has, reading it ends with a message or an error.
func FuzzDecodeWaiting(f *testing.F) {
	good, err := encodeWaiting(&paho.Publish{Topic: "a", QoS: 2, Properties: &paho.PublishProperties{}}, time.Now())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte{})
	f.Add([]byte{waitingVersion + 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, added, err := decodeWaiting(b)
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNewer) {
				t.Errorf("error %v", err)
			}
			return
		}
		again, err := encodeWaiting(p, added)
		if err == nil && !bytes.Equal(again, b) {
			t.Errorf("%x is read as %v, which is written as %x", b, p, again)
		}
	})
}

// Whatever a file has, it is read, or set aside, and goes on to remember.
func FuzzOpenSeen(f *testing.F) {
	f.Add([]byte("mqinsee\x01"))
	f.Add([]byte("mqinsee\x01 and an entry that is none, and then some more"))
	f.Add([]byte{})
	path := filepath.Join(f.TempDir(), "seen")
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, fileMode); err != nil {
			t.Fatal(err)
		}
		for n := range 2 {
			s, err := OpenSeen(path, SeenOptions{Max: 3, Log: slog.New(slog.DiscardHandler)})
			if errors.Is(err, ErrNewer) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if first, err := s.First("a"); err != nil || first && n > 0 {
				t.Errorf("new the %d. time: %t, %v", n+1, first, err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
