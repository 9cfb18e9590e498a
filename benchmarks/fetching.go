// fetching: readers in fetch sessions (Fetch v11) of a topic that one producer writes to; prints one JSON line.
//
// In each round the producer writes one record to each of B partitions. Every reader has a session of all P
// partitions and reads on.
//
//	-wait=false: the records are there before the fetch is sent; the time is that of the fetch
//	-wait: the fetches wait already; the time is from the first write until the last reader has all records
//
//	fetching -b host:port -t topic -p partitions -busy partitions -c readers -n rounds [-wait]
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net"
	"time"
)

type line struct {
	conn   net.Conn
	reader *bufio.Reader
	body   []byte
}

func dial(address string) *line {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		die(err)
	}
	return &line{conn, bufio.NewReaderSize(conn, 1<<17), make([]byte, 1<<20)}
}

func (l *line) send(request []byte) {
	if _, err := l.conn.Write(request); err != nil {
		die(err)
	}
}

func (l *line) receive() []byte {
	head := make([]byte, 4)
	if _, err := io.ReadFull(l.reader, head); err != nil {
		die(err)
	}
	length := int(be.Uint32(head))
	if length > len(l.body) {
		l.body = make([]byte, length)
	}
	if _, err := io.ReadFull(l.reader, l.body[:length]); err != nil {
		die(err)
	}
	return l.body[:length]
}

type reader struct {
	*line
	topic   string
	session uint32
	epoch   uint32
	offsets []uint64
	changed []int // partitions that the next request names
	isOpen  bool  // before, partitions may not be there yet
}

func (r *reader) fetch(waitMs uint32) {
	b := header(1, 11)
	b = be.AppendUint32(b, 0xffffffff) // a consumer
	b = be.AppendUint32(b, waitMs)
	b = be.AppendUint32(b, 1)     // min bytes
	b = be.AppendUint32(b, 1<<24) // max bytes
	b = append(b, 0)              // isolation level
	b = be.AppendUint32(b, r.session)
	b = be.AppendUint32(b, r.epoch)
	if len(r.changed) == 0 {
		b = be.AppendUint32(b, 0)
	} else {
		b = be.AppendUint32(b, 1)
		b = be.AppendUint16(b, uint16(len(r.topic)))
		b = append(b, r.topic...)
		b = be.AppendUint32(b, uint32(len(r.changed)))
		for _, partition := range r.changed {
			b = be.AppendUint32(b, uint32(partition))
			b = be.AppendUint32(b, 0xffffffff) // any leader epoch
			b = be.AppendUint64(b, r.offsets[partition])
			b = be.AppendUint64(b, 0xffffffffffffffff) // no log start: not a follower
			b = be.AppendUint32(b, 1<<20)
		}
	}
	b = be.AppendUint32(b, 0) // forgotten
	b = be.AppendUint16(b, 0) // rack
	r.epoch++
	r.changed = r.changed[:0]
	r.send(framed(b))
}

// open begins a session, as soon as the broker leads all of its partitions.
func (r *reader) open() {
	for {
		r.session, r.epoch, r.changed = 0, 0, r.changed[:0]
		for partition := range r.offsets {
			r.changed = append(r.changed, partition)
		}
		r.fetch(0)
		found := r.read()
		for found > 0 {
			r.fetch(0)
			found = r.read()
		}
		if found == 0 {
			r.isOpen = true
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// read takes one answer and returns how many records it had; -1: a partition is not there yet.
func (r *reader) read() int {
	b := r.receive()
	at := 4 + 4 // correlation id, throttle time
	if code := be.Uint16(b[at:]); code != 0 {
		die("fetch: error code", code)
	}
	r.session = be.Uint32(b[at+2:])
	topics := int(be.Uint32(b[at+6:]))
	at += 10
	found := 0
	for range topics {
		at += 2 + int(be.Uint16(b[at:]))
		partitions := int(be.Uint32(b[at:]))
		at += 4
		for range partitions {
			partition := int(be.Uint32(b[at:]))
			if code := be.Uint16(b[at+4:]); code != 0 {
				if !r.isOpen {
					return -1
				}
				die("fetch: error code", code, "of partition", partition)
			}
			at += 4 + 2 + 8 + 8 + 8
			if aborted := int32(be.Uint32(b[at:])); aborted > 0 {
				die("aborted transactions in a topic without transactions")
			}
			at += 4 + 4 // aborted transactions, preferred read replica
			size := int(int32(be.Uint32(b[at:])))
			at += 4
			end := at + max(size, 0)
			for at+61 <= end {
				length := int(be.Uint32(b[at+8:])) + 12
				if at+length > end {
					break // Kafka cuts the last batch off where the answer is full
				}
				r.offsets[partition] = be.Uint64(b[at:]) + uint64(be.Uint32(b[at+23:])) + 1
				found += int(be.Uint32(b[at+57:]))
				at += length
			}
			at = end
			if size > 0 {
				r.changed = append(r.changed, partition)
			}
		}
	}
	return found
}

func main() {
	address := flag.String("b", "127.0.0.1:9092", "bootstrap")
	topic := flag.String("t", "fetching", "topic")
	partitions := flag.Int("p", 1, "partitions of the session")
	busy := flag.Int("busy", 1, "partitions that get a record in each round")
	readers := flag.Int("c", 1, "readers")
	rounds := flag.Int("n", 5000, "rounds")
	waits := flag.Bool("wait", false, "fetch before the records are written")
	size := flag.Int("s", 100, "bytes of a value")
	flag.Parse()
	producer := dial(*address)
	requests := make([][]byte, *busy)
	for i := range requests {
		requests[i] = produceRequest(*topic, i*(*partitions / *busy), 1, *size)
	}
	write := func() {
		for _, request := range requests {
			producer.send(request)
			answer := producer.receive()
			if code := be.Uint16(answer[4+4+2+len(*topic)+4+4:]); code != 0 {
				die("produce: error code", code)
			}
		}
	}
	all := make([]*reader, *readers)
	for i := range all {
		r := &reader{line: dial(*address), topic: *topic, offsets: make([]uint64, *partitions)}
		r.open()
		all[i] = r
	}
	var latencies []time.Duration
	began := time.Now()
	for range *rounds {
		var from time.Time
		if *waits {
			for _, r := range all {
				r.fetch(10_000)
			}
			from = time.Now()
			write()
		} else {
			write()
			from = time.Now()
			for _, r := range all {
				r.fetch(10_000)
			}
		}
		for _, r := range all {
			for found := r.read(); found < *busy; found += r.read() {
				r.fetch(10_000)
			}
		}
		latencies = append(latencies, time.Since(from))
	}
	elapsed := time.Since(began)
	at := percentiles(latencies)
	fmt.Printf("{\"rounds_per_s\": %.0f, \"p50_us\": %.1f, \"p99_us\": %.1f}\n",
		float64(*rounds)/elapsed.Seconds(), at(.5), at(.99))
}
