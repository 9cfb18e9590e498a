// pingpong: raw requests of one record over C connections, one in flight each; prints one JSON line.
//
// Produce v7 by default, Fetch v4 at random offsets below -fetch when that is given.
//
//	pingpong -b host:port -t topic -p partition -c connections -n requests [-s value bytes] [-a acks] [-fetch end offset]
package main

import (
	"bufio"
	"encoding/binary"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand"
	"net"
	"os"
	"sort"
	"sync"
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

// fetchRequest asks for one batch; the offset lies in the last 12 bytes, before the partition's limit.
func fetchRequest(topic string, partition int) []byte {
	b := header(1, 4)
	b = be.AppendUint32(b, 0xffffffff) // a consumer
	b = be.AppendUint32(b, 100)        // max wait
	b = be.AppendUint32(b, 1)          // min bytes
	b = be.AppendUint32(b, 1)          // max bytes: one batch
	b = append(b, 0)
	b = named(b, topic, partition)
	b = be.AppendUint64(b, 0)
	return framed(be.AppendUint32(b, 1))
}

func die(what ...any) {
	fmt.Fprintln(os.Stderr, what...)
	os.Exit(1)
}

func main() {
	address := flag.String("b", "127.0.0.1:9092", "bootstrap")
	topic := flag.String("t", "pingpong", "topic")
	partition := flag.Int("p", 0, "partition")
	requests := flag.Int("n", 50000, "requests in all")
	connections := flag.Int("c", 1, "connections")
	size := flag.Int("s", 100, "bytes of a value")
	acks := flag.Int("a", 1, "acks")
	end := flag.Int64("fetch", 0, "fetch at random offsets below this one instead of producing")
	flag.Parse()
	latencies := make([][]time.Duration, *connections)
	var done sync.WaitGroup
	began := time.Now()
	for i := range *connections {
		done.Add(1)
		go func() {
			defer done.Done()
			conn, err := net.Dial("tcp", *address)
			if err != nil {
				die(err)
			}
			defer conn.Close()
			reader := bufio.NewReaderSize(conn, 1<<17)
			rng := rand.New(rand.NewSource(int64(i)))
			// the error code follows correlation id, [throttle,] array, name, array and partition
			errorAt := 4 + 4 + 2 + len(*topic) + 4 + 4
			request := produceRequest(*topic, *partition, int16(*acks), *size)
			if *end > 0 {
				request = fetchRequest(*topic, *partition)
				errorAt += 4
			}
			head, body := make([]byte, 4), make([]byte, 1<<16)
			for range *requests / *connections {
				if *end > 0 {
					be.PutUint64(request[len(request)-12:], uint64(rng.Int63n(*end)))
				}
				sent := time.Now()
				if _, err := conn.Write(request); err != nil {
					die(err)
				}
				if _, err := io.ReadFull(reader, head); err != nil {
					die(err)
				}
				length := int(be.Uint32(head))
				if length > len(body) {
					body = make([]byte, length)
				}
				if _, err := io.ReadFull(reader, body[:length]); err != nil {
					die(err)
				}
				latencies[i] = append(latencies[i], time.Since(sent))
				if code := be.Uint16(body[errorAt:]); code != 0 {
					die("error code", code)
				}
			}
		}()
	}
	done.Wait()
	elapsed := time.Since(began)
	var all []time.Duration
	for _, some := range latencies {
		all = append(all, some...)
	}
	sort.Slice(all, func(a, b int) bool { return all[a] < all[b] })
	at := func(p float64) float64 { return float64(all[int(p*float64(len(all)-1))].Nanoseconds()) / 1e3 }
	fmt.Printf("{\"requests_per_s\": %.0f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f}\n",
		float64(len(all))/elapsed.Seconds(), at(.5), at(.99), at(.999), at(1))
}
