// attack: strangers at the door of a broker, so many of them a second; prints one line of JSON at the end.
//
// Each has a connection of its own, waits for what the broker says to it, and is gone. The kinds:
//
//	scram     a wrong password, by SCRAM-SHA-256
//	plain     the same, by PLAIN
//	hangup    the same, but it hangs up as soon as it has sent the password
//	kid       a token that was signed with an unknown key, by OAUTHBEARER
//	token     a token that was mutated
//	message   a message of any mechanism that was mutated
//	hello     a ClientHello that was mutated
//	slow      a TLS handshake that stops at some byte; the connection stays open until the broker closes it
//
//	attack -b host:port -kind kind -rate strangers per second -seconds seconds
package main

import (
	"crypto/tls"
	"encoding/base64"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	together = 3000 // strangers at a time: descriptors are few
	patience = 30 * time.Second
)

var target = flag.String("b", "127.0.0.1:9092", "bootstrap")

// mutated is what a byte stream becomes when somebody plays with it.
func mutated(data []byte) []byte {
	out := append([]byte(nil), data...)
	for range 1 + rand.Intn(4) {
		at := rand.Intn(len(out) + 1)
		switch rand.Intn(4) {
		case 0:
			out = out[:at]
		case 1:
			if at < len(out) {
				out[at] = byte(rand.Intn(256))
			}
		case 2:
			out = append(out[:at:at], append([]byte{byte(rand.Intn(256)), 0xff}, out[at:]...)...)
		case 3:
			out = append(out[:at:at], out[min(len(out), at+1+rand.Intn(4)):]...)
		}
	}
	return out
}

// say sends one request and returns the answer; nil when there is none.
func say(conn net.Conn, request []byte) []byte {
	if _, err := conn.Write(framed(request)); err != nil {
		return nil
	}
	head := make([]byte, 4)
	if _, err := io.ReadFull(conn, head); err != nil {
		return nil
	}
	answer := make([]byte, be.Uint32(head))
	if _, err := io.ReadFull(conn, answer); err != nil {
		return nil
	}
	return answer
}

func message(data []byte) []byte {
	return append(be.AppendUint32(header(36, 1), uint32(len(data))), data...)
}

func token(head, claims string) []byte {
	code := base64.RawURLEncoding
	signature := make([]byte, 64)
	rand.Read(signature)
	text := code.EncodeToString([]byte(head)) + "." + code.EncodeToString([]byte(claims)) + "." + code.EncodeToString(signature)
	return []byte("n,,\x01auth=Bearer " + text + "\x01\x01")
}

func goodClaims() string {
	now := time.Now().Unix()
	return fmt.Sprintf(`{"sub": "alice", "iat": %d, "exp": %d}`, now, now+3600)
}

// hello is what a client of Go says first.
func hello() []byte {
	ours, theirs := net.Pipe()
	go tls.Client(ours, &tls.Config{ServerName: "localhost"}).Handshake()
	data := make([]byte, 4096)
	count, err := theirs.Read(data)
	if err != nil {
		die(err)
	}
	theirs.Close()
	return data[:count]
}

var firstHello = sync.OnceValue(hello)

// guess is a login that fails; waits: for the broker's last word.
func guess(conn net.Conn, mechanism string, messages [][]byte, waits bool) {
	if say(conn, textIn(header(17, 1), mechanism)) == nil {
		return
	}
	for i, one := range messages {
		if !waits && i == len(messages)-1 {
			conn.Write(framed(message(one)))
			return
		}
		if say(conn, message(one)) == nil {
			return
		}
	}
	io.Copy(io.Discard, conn)
}

func scram(conn net.Conn) {
	if say(conn, textIn(header(17, 1), "SCRAM-SHA-256")) == nil {
		return
	}
	answer := say(conn, message([]byte("n,,n=alice,r=guess")))
	if len(answer) < 12 || be.Uint16(answer[4:]) != 0 {
		return
	}
	rest := answer[8:] // no error message
	told := string(rest[4 : 4+be.Uint32(rest)])
	nonce := told[2:]
	for i := range nonce {
		if nonce[i] == ',' {
			nonce = nonce[:i]
			break
		}
	}
	proof := base64.StdEncoding.EncodeToString(make([]byte, 32))
	say(conn, message([]byte("c=biws,r="+nonce+",p="+proof)))
	io.Copy(io.Discard, conn)
}

func visit(kind string, conn net.Conn) {
	password := []byte("\x00alice\x00guessed")
	switch kind {
	case "scram":
		scram(conn)
	case "plain":
		guess(conn, "PLAIN", [][]byte{password}, true)
	case "hangup":
		guess(conn, "PLAIN", [][]byte{password}, false)
	case "kid":
		head := fmt.Sprintf(`{"alg": "RS256", "kid": "key-%d"}`, rand.Int63())
		guess(conn, "OAUTHBEARER", [][]byte{token(head, goodClaims()), {1}}, true)
	case "token":
		head := string(mutated([]byte(`{"alg": "RS256", "kid": "key-1"}`)))
		guess(conn, "OAUTHBEARER", [][]byte{mutated(token(head, string(mutated([]byte(goodClaims()))))), {1}}, true)
	case "message":
		switch rand.Intn(3) {
		case 0:
			guess(conn, "PLAIN", [][]byte{mutated(password)}, true)
		case 1:
			last := mutated([]byte("c=biws,r=guess,p=AAAA"))
			guess(conn, "SCRAM-SHA-256", [][]byte{mutated([]byte("n,,n=alice,r=guess")), last}, true)
		case 2:
			guess(conn, "OAUTHBEARER", [][]byte{mutated(token(`{"alg": "none"}`, goodClaims())), {1}}, true)
		}
	case "hello":
		conn.Write(mutated(firstHello()))
		conn.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, conn)
	case "slow":
		conn.Write(firstHello()[:rand.Intn(len(firstHello()))])
		io.Copy(io.Discard, conn)
	default:
		die("no such kind:", kind)
	}
}

func main() {
	kind := flag.String("kind", "scram", "of the strangers")
	rate := flag.Int("rate", 2000, "strangers per second")
	seconds := flag.Float64("seconds", 5, "how long they come")
	flag.Parse()
	firstHello()
	var came, served, refused atomic.Int64
	var there atomic.Int64
	began := time.Now()
	until := time.Duration(*seconds * float64(time.Second))
	for time.Since(began) < until {
		due := int64(time.Since(began).Seconds() * float64(*rate))
		for came.Load() < due && there.Load() < together {
			came.Add(1)
			there.Add(1)
			go func() {
				defer there.Add(-1)
				conn, err := net.DialTimeout("tcp", *target, patience)
				if err != nil {
					refused.Add(1)
					return
				}
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(patience))
				visit(*kind, conn)
				served.Add(1)
			}()
		}
		time.Sleep(time.Millisecond)
	}
	elapsed := time.Since(began).Seconds()
	fmt.Printf("{\"per_s\": %.0f, \"came\": %d, \"done\": %d, \"not_connected\": %d}\n",
		float64(came.Load())/elapsed, came.Load(), served.Load(), refused.Load())
}
