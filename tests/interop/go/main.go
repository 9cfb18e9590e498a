// franz-go as a storyteller: `franz STORY BOOTSTRAP TOPIC` prints one JSON line per step.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func tell(step string, told any) {
	fmt.Println(string(must(json.Marshal(map[string]any{"step": step, "told": told}))))
}

// code names Kafka's error, which is what both brokers must agree on.
func code(err error) string {
	var known *kerr.Error
	switch {
	case err == nil:
		return "none"
	case errors.As(err, &known):
		return known.Message
	}
	return "other: " + err.Error()
}

func until(ask func() any, expected any) {
	deadline := time.Now().Add(30 * time.Second)
	for answer := ask(); answer != expected; answer = ask() {
		if time.Now().After(deadline) {
			check(fmt.Errorf("still %v, expected %v", answer, expected))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// seeds: BOOTSTRAP may name several brokers.
func seeds(bootstrap string) kgo.Opt {
	return kgo.SeedBrokers(strings.Split(bootstrap, ",")...)
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	stories := map[string]func(context.Context, string, string){
		"records": records, "groups": groups, "next-gen": nextGen, "transactions": transactions, "member": member,
		"secured": secured,
	}
	stories[os.Args[1]](ctx, os.Args[2], os.Args[3])
}
