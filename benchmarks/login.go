// Connections of generators of raw requests: plain ones, or with TLS (-ca) and a login by SCRAM-SHA-256 (-user).
package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
)

var (
	user      = flag.String("user", "", "who logs in, by SCRAM-SHA-256; none: without a login")
	password  = flag.String("password", "", "of the user")
	authority = flag.String("ca", "", "file with the certificate of the authority; none: without TLS")
	settings  = sync.OnceValue(trust)
)

func trust() *tls.Config {
	pem, err := os.ReadFile(*authority)
	if err != nil {
		die(err)
	}
	known := x509.NewCertPool()
	if !known.AppendCertsFromPEM(pem) {
		die("no certificate in", *authority)
	}
	return &tls.Config{RootCAs: known}
}

// connect returns a connection whose client is in.
func connect(address string) net.Conn {
	var conn net.Conn
	var err error
	if *authority == "" {
		conn, err = net.Dial("tcp", address)
	} else {
		conn, err = tls.Dial("tcp", address, settings())
	}
	if err != nil {
		die(err)
	}
	if *user != "" {
		logIn(conn)
	}
	return conn
}

func mac(key []byte, text string) []byte {
	made := hmac.New(sha256.New, key)
	made.Write([]byte(text))
	return made.Sum(nil)
}

// logIn is RFC 5802, without a look at the server's proof.
func logIn(conn net.Conn) {
	exchange(conn, textIn(header(17, 1), "SCRAM-SHA-256"))
	name := strings.NewReplacer("=", "=3D", ",", "=2C").Replace(*user)
	first := "n=" + name + ",r=benchmark"
	challenge := authenticate(conn, "n,,"+first)
	told := map[byte]string{}
	for _, part := range strings.Split(challenge, ",") {
		told[part[0]] = part[2:]
	}
	salt, err := base64.StdEncoding.DecodeString(told['s'])
	if err != nil {
		die(err)
	}
	iterations, err := strconv.Atoi(told['i'])
	if err != nil {
		die(err)
	}
	salted, err := pbkdf2.Key(sha256.New, *password, salt, iterations, sha256.Size)
	if err != nil {
		die(err)
	}
	last := "c=biws,r=" + told['r']
	key := mac(salted, "Client Key")
	stored := sha256.Sum256(key)
	for i, one := range mac(stored[:], first+","+challenge+","+last) {
		key[i] ^= one
	}
	authenticate(conn, last+",p="+base64.StdEncoding.EncodeToString(key))
}

func textIn(b []byte, text string) []byte {
	return append(be.AppendUint16(b, uint16(len(text))), text...)
}

// authenticate sends one message of the login and returns the server's.
func authenticate(conn net.Conn, message string) string {
	b := be.AppendUint32(header(36, 1), uint32(len(message)))
	answer := exchange(conn, append(b, message...))
	size := int(int16(be.Uint16(answer[6:]))) // of the error message: -1 without one
	rest := answer[8+max(size, 0):]
	return string(rest[4 : 4+be.Uint32(rest)])
}

// exchange returns an answer whose error code is 0, from its correlation id on.
func exchange(conn net.Conn, request []byte) []byte {
	if _, err := conn.Write(framed(request)); err != nil {
		die(err)
	}
	head := make([]byte, 4)
	if _, err := io.ReadFull(conn, head); err != nil {
		die(err)
	}
	answer := make([]byte, be.Uint32(head))
	if _, err := io.ReadFull(conn, answer); err != nil {
		die(err)
	}
	if code := be.Uint16(answer[4:]); code != 0 {
		die(fmt.Sprintf("the login is refused with code %d: %s", code, bytes.TrimSpace(answer[6:])))
	}
	return answer
}
