// pingpong: raw requests of one record over C connections, one in flight each; prints one JSON line.
//
// Produce v7 by default, Fetch v4 at random offsets below -fetch when that is given.
//
//	pingpong -b host:port -t topic -p partition -c connections -n requests [-s value bytes] [-a acks] [-fetch end offset]
//	         [-user user -password password] [-ca file]
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"net"
	"sync"
	"time"
)

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
	opened := make([]net.Conn, *connections)
	for i := range opened {
		opened[i] = connect(*address)
		defer opened[i].Close()
	}
	began := time.Now()
	for i, conn := range opened {
		done.Add(1)
		go func() {
			defer done.Done()
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
	at := percentiles(all)
	fmt.Printf("{\"requests_per_s\": %.0f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f}\n",
		float64(len(all))/elapsed.Seconds(), at(.5), at(.99), at(.999), at(1))
}
