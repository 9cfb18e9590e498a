// frames: requests made elsewhere, sent over and over, each after the answer to the one before; prints one JSON line.
//
// The file has a line per request: connection, the frame and the answer it has to get, both in hex and without their
// sizes. Each connection goes round its own requests. Another answer than the one wanted means "not yet": the request
// is sent again until it is answered as wanted.
//
//	frames -b host:port -n requests FILE
package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"
)

const (
	pause    = 100 * time.Microsecond
	patience = 10 * time.Second
)

type pair struct{ request, wanted []byte }

func decoded(text string) []byte {
	data, err := hex.DecodeString(text)
	if err != nil {
		die(err)
	}
	return data
}

func load(path string) map[string][]pair {
	text, err := os.ReadFile(path)
	if err != nil {
		die(err)
	}
	found := map[string][]pair{}
	for _, line := range strings.Fields(string(text)) {
		fields := strings.Split(line, ",")
		request := decoded(fields[1])
		found[fields[0]] = append(found[fields[0]], pair{framed(append(make([]byte, 4), request...)), decoded(fields[2])})
	}
	return found
}

func main() {
	address := flag.String("b", "127.0.0.1:9092", "bootstrap")
	requests := flag.Int("n", 10000, "requests in all")
	flag.Parse()
	// one core for us: on a small machine our own threads would take what is to be measured
	runtime.GOMAXPROCS(1)
	byConnection := load(flag.Arg(0))
	var (
		done      sync.WaitGroup
		lock      sync.Mutex
		latencies []time.Duration
		retries   int
	)
	connections := make(map[string]net.Conn)
	for name := range byConnection {
		connections[name] = connect(*address)
		defer connections[name].Close()
	}
	began := time.Now()
	for name, exchanges := range byConnection {
		done.Add(1)
		go func() {
			defer done.Done()
			conn := connections[name]
			reader := bufio.NewReaderSize(conn, 1<<17)
			head, again := make([]byte, 4), 0
			own := make([]time.Duration, 0, *requests/len(byConnection))
			for i := range *requests / len(byConnection) {
				next := exchanges[i%len(exchanges)]
				for sent := time.Now(); ; again++ {
					if _, err := conn.Write(next.request); err != nil {
						die(err)
					}
					if _, err := io.ReadFull(reader, head); err != nil {
						die(err)
					}
					answer := make([]byte, be.Uint32(head))
					if _, err := io.ReadFull(reader, answer); err != nil {
						die(err)
					}
					if bytes.Equal(answer, next.wanted) {
						own = append(own, time.Since(sent))
						break
					}
					if time.Since(sent) > patience {
						die("still answered with", hex.EncodeToString(answer))
					}
					time.Sleep(pause)
				}
			}
			lock.Lock()
			defer lock.Unlock()
			latencies = append(latencies, own...)
			retries += again
		}()
	}
	done.Wait()
	elapsed := time.Since(began)
	at := percentiles(latencies)
	fmt.Printf("{\"requests_per_s\": %.0f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"retries\": %d}\n",
		float64(len(latencies))/elapsed.Seconds(), at(.5), at(.99), retries)
}
