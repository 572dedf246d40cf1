package client

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
)

// The file of a [Seen]: what it is, and an entry for each id.
//
//	"mqinsee" version:1 = 1   entry*
//
//	entry:  hash:16   the first half of the id's SHA-256
//	        sum:4     CRC-32C of the hash, big endian
//
// It is written at the end, and as a whole into a new file when it has become twice as
// long as needed. An entry whose sum is wrong was not complete when the process or the
// machine ended, and counts for nothing.
const (
	seenMagic     = "mqinsee"
	seenVersion   = 1
	seenHeader    = len(seenMagic) + 1
	seenEntrySize = seenKeySize + 4
	seenKeySize   = 16
)

// seenKey stands for an id.
type seenKey [seenKeySize]byte

func keyOf(id string) seenKey {
	sum := sha256.Sum256([]byte(id))
	return seenKey(sum[:seenKeySize])
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seenFile is an open file. The zero value is none, into which nothing fits.
type seenFile struct {
	file    *os.File
	entries int // that are complete, or passed over
}

var errNoSeenFile = errors.New("there is no such file")

// openSeenFile opens a file, gives each id to remember, and counts the entries that
// were not complete. Errors: errNoSeenFile, ErrDamaged, ErrNewer.
func openSeenFile(path string, remember func(seenKey)) (s seenFile, bad int, err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return seenFile{}, 0, errNoSeenFile
	}
	if err != nil {
		return seenFile{}, 0, fmt.Errorf("open a file: %w", err)
	}
	s = seenFile{file: f}
	bad, err = s.read(remember)
	if err != nil {
		return seenFile{}, 0, errors.Join(err, f.Close())
	}
	return s, bad, nil
}

func (s *seenFile) read(remember func(seenKey)) (bad int, err error) {
	r := bufio.NewReader(s.file)
	header := make([]byte, seenHeader)
	_, err = io.ReadFull(r, header)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || err == nil && string(header[:len(seenMagic)]) != seenMagic {
		return 0, ErrDamaged
	}
	if err != nil {
		return 0, fmt.Errorf("read a file: %w", err)
	}
	if header[len(seenMagic)] != seenVersion {
		return 0, ErrNewer
	}
	entry := make([]byte, seenEntrySize)
	for {
		switch _, err := io.ReadFull(r, entry); {
		case errors.Is(err, io.EOF):
			return bad, nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return bad + 1, nil // the next one is written over it
		case err != nil:
			return 0, fmt.Errorf("read a file: %w", err)
		}
		s.entries++
		k := seenKey(entry)
		if binary.BigEndian.Uint32(entry[seenKeySize:]) == crc32.Checksum(k[:], castagnoli) {
			remember(k)
		} else {
			bad++
		}
	}
}

// newSeenFile makes a file with these ids, in the place of the one there was.
func newSeenFile(path string, all []seenKey) (seenFile, error) {
	b := bytes.NewBuffer(make([]byte, 0, seenHeader+len(all)*seenEntrySize))
	b.WriteString(seenMagic)
	b.WriteByte(seenVersion)
	b.Write(encodeSeen(all))
	if err := writeFile(path, b.Bytes()); err != nil {
		return seenFile{}, err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return seenFile{}, fmt.Errorf("open a file: %w", err)
	}
	return seenFile{file: f, entries: len(all)}, nil
}

func encodeSeen(keys []seenKey) []byte {
	b := make([]byte, 0, len(keys)*seenEntrySize)
	for _, k := range keys {
		b = append(b, k[:]...)
		b = binary.BigEndian.AppendUint32(b, crc32.Checksum(k[:], castagnoli))
	}
	return b
}

// fits reports whether so many more can be appended to a file that has no more than
// limit.
func (s *seenFile) fits(more, limit int) bool {
	return s.file != nil && s.entries+more <= limit
}

// append writes ids behind those that are there, and syncs. After an error nobody knows
// what the file has, so it is closed: the next one is a new one.
func (s *seenFile) append(keys []seenKey) error {
	_, err := s.file.WriteAt(encodeSeen(keys), int64(seenHeader+s.entries*seenEntrySize))
	if err == nil {
		err = s.file.Sync()
	}
	if err != nil {
		return errors.Join(err, s.close())
	}
	s.entries += len(keys)
	return nil
}

func (s *seenFile) close() error {
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	s.file = nil
	return err
}
