// What the generators of raw requests share: frames of the protocol, written by hand, and percentiles.
package main

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"sort"
	"time"
)

var be = binary.BigEndian

func batch(size int) []byte {
	record := []byte{0, 0, 0} // attributes, timestamp delta, offset delta
	record = binary.AppendVarint(record, -1)
	record = binary.AppendVarint(record, int64(size))
	record = append(record, make([]byte, size)...)
	record = append(record, 0)
	records := append(binary.AppendVarint(nil, int64(len(record))), record...)
	b := make([]byte, 61)
	be.PutUint32(b[8:], uint32(49+len(records)))
	b[16] = 2 // magic
	now := uint64(time.Now().UnixMilli())
	be.PutUint64(b[27:], now)
	be.PutUint64(b[35:], now)
	for i := 43; i < 57; i++ { // no producer id, epoch or sequence
		b[i] = 0xff
	}
	be.PutUint32(b[57:], 1)
	b = append(b, records...)
	be.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

func header(api, version uint16) []byte {
	b := make([]byte, 4)
	b = be.AppendUint16(b, api)
	b = be.AppendUint16(b, version)
	b = be.AppendUint32(b, 1)
	b = be.AppendUint16(b, 2)
	return append(b, "pp"...)
}

func named(b []byte, topic string, partition int) []byte {
	b = be.AppendUint32(b, 1)
	b = be.AppendUint16(b, uint16(len(topic)))
	b = append(b, topic...)
	b = be.AppendUint32(b, 1)
	return be.AppendUint32(b, uint32(partition))
}

func framed(b []byte) []byte {
	be.PutUint32(b, uint32(len(b)-4))
	return b
}

func produceRequest(topic string, partition int, acks int16, size int) []byte {
	b := header(0, 7)
	b = be.AppendUint16(b, 0xffff) // no transactional id
	b = be.AppendUint16(b, uint16(acks))
	b = be.AppendUint32(b, 5000)
	b = named(b, topic, partition)
	records := batch(size)
	b = be.AppendUint32(b, uint32(len(records)))
	return framed(append(b, records...))
}

func die(what ...any) {
	fmt.Fprintln(os.Stderr, what...)
	os.Exit(1)
}

// percentiles returns a function of p from 0 to 1, in microseconds.
func percentiles(all []time.Duration) func(float64) float64 {
	sort.Slice(all, func(a, b int) bool { return all[a] < all[b] })
	return func(p float64) float64 { return float64(all[int(p*float64(len(all)-1))].Nanoseconds()) / 1e3 }
}
