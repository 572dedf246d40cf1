package client

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
)

// The file of a message in an [Outbox]. Its name is the message's number in 16 hexadecimal
// digits, which is its place in the order, and ".msg".
//
//	version:1 = 1
//	sum:4      CRC-32C of what follows, big endian
//	added:8    when it was added, Unix milliseconds, big endian
//	packet     PUBLISH, as MQTT 5 has it, under packet id 0
const (
	waitingVersion = 1
	waitingHeader  = 1 + 4 + 8
	waitingEnd     = ".msg"
)

func waitingName(number uint64) string { return fmt.Sprintf("%016x%s", number, waitingEnd) }

// openOutboxDir takes the lock of a directory and lists what waits in it, in order.
func openOutboxDir(dir string) (held lock, all []*waiting, last uint64, err error) {
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return lock{}, nil, 0, fmt.Errorf("make the directory: %w", err)
	}
	held, err = takeLock(filepath.Join(dir, "lock"))
	if err != nil {
		return lock{}, nil, 0, err
	}
	all, last, err = listWaiting(dir)
	if err != nil {
		return lock{}, nil, 0, errors.Join(err, held.release())
	}
	return held, all, last, nil
}

// listWaiting lists the files of messages, in order, and removes those that are not
// complete. last is the largest number that any file has, one that was set aside among
// them.
func listWaiting(dir string) (all []*waiting, last uint64, err error) {
	files, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, 0, fmt.Errorf("list the messages: %w", err)
	}
	for _, file := range files {
		digits, end, _ := strings.Cut(file.Name(), ".")
		number, err := strconv.ParseUint(digits, 16, 64)
		if err != nil || len(digits) != 16 || !strings.HasPrefix("."+end, waitingEnd) {
			continue // not ours
		}
		last = max(last, number)
		switch "." + end {
		case waitingEnd:
			info, err := file.Info()
			if err != nil {
				return nil, 0, fmt.Errorf("list the messages: %w", err)
			}
			all = append(all, &waiting{number: number, size: info.Size()})
		case waitingEnd + temporaryEnd:
			if err := os.Remove(filepath.Join(dir, file.Name())); err != nil {
				return nil, 0, fmt.Errorf("remove what is not complete: %w", err)
			}
		}
	}
	return all, last, nil
}

// encodeWaiting returns what is kept of a message.
func encodeWaiting(p *paho.Publish, added time.Time) ([]byte, error) {
	if err := check(p); err != nil {
		return nil, err
	}
	var packet bytes.Buffer
	if _, err := p.Packet().WriteTo(&packet); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	b := make([]byte, waitingHeader, waitingHeader+packet.Len())
	b[0] = waitingVersion
	binary.BigEndian.PutUint64(b[5:], uint64(added.UnixMilli()))
	b = append(b, packet.Bytes()...)
	binary.BigEndian.PutUint32(b[1:], crc32.Checksum(b[5:], castagnoli))
	return b, nil
}

// decodeWaiting reads what encodeWaiting has made. Errors: ErrDamaged, ErrNewer.
func decodeWaiting(b []byte) (p *paho.Publish, added time.Time, err error) {
	if len(b) > 0 && b[0] > waitingVersion {
		return nil, time.Time{}, ErrNewer
	}
	if len(b) < waitingHeader || binary.BigEndian.Uint32(b[1:]) != crc32.Checksum(b[5:], castagnoli) {
		return nil, time.Time{}, ErrDamaged
	}
	packet, err := packets.ReadPacket(bytes.NewReader(b[waitingHeader:]))
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	publish, ok := packet.Content.(*packets.Publish)
	if !ok {
		return nil, time.Time{}, ErrDamaged
	}
	return paho.PublishFromPacketPublish(publish), time.UnixMilli(int64(binary.BigEndian.Uint64(b[5:]))), nil
}
