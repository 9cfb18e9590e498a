package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// cell is one way to come to a secured broker (secured_cells.py).
type cell struct {
	Name, Bootstrap, Authority, Certificate, Key, Mechanism, User, Password, Token, Topic string
	Count                                                                                 int
	Seconds                                                                               float64
}

func (it cell) options() []kgo.Opt {
	options := []kgo.Opt{seeds(it.Bootstrap), kgo.ClientID(it.Topic), kgo.DialTimeout(time.Minute)}
	if it.Authority != "" {
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM(must(os.ReadFile(it.Authority)))
		config := &tls.Config{RootCAs: trusted, ServerName: "localhost"}
		if it.Certificate != "" {
			config.Certificates = []tls.Certificate{must(tls.LoadX509KeyPair(it.Certificate, it.Key))}
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	switch it.Mechanism {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: it.User, Pass: it.Password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: it.User, Pass: it.Password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: it.User, Pass: it.Password}.AsSha512Mechanism()))
	case "OAUTHBEARER":
		options = append(options, kgo.SASL(oauth.Auth{Token: it.Token}.AsMechanism()))
	}
	return options
}

// echo sends record after record and reads each of them back in a group, then commits.
func (it cell) echo(ctx context.Context) (map[string]any, error) {
	sender, err := kgo.NewClient(it.options()...)
	if err != nil {
		return nil, err
	}
	defer sender.Close()
	if err := sender.Ping(ctx); err != nil {
		return nil, err
	}
	reader, err := kgo.NewClient(append(it.options(), kgo.ConsumerGroup(it.Topic), kgo.ConsumeTopics(it.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond), kgo.DisableAutoCommit())...)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	var until time.Time
	number := 0
	for ; number < it.Count || time.Now().Before(until); number++ {
		sent := sender.ProduceSync(ctx, &kgo.Record{Topic: it.Topic, Value: []byte(fmt.Sprint(number))})
		if err := sent.FirstErr(); err != nil {
			return nil, err
		}
		for read := false; !read; {
			fetches := reader.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				return nil, err
			}
			for _, record := range fetches.Records() {
				// a member whose connection ended may begin again
				if string(record.Value) != fmt.Sprint(record.Offset) || record.Offset > int64(number) {
					return nil, fmt.Errorf("%s at %d instead of %d", record.Value, record.Offset, number)
				}
				read = read || record.Offset == int64(number)
			}
		}
		if number == it.Count-1 {
			until = time.Now().Add(time.Duration(it.Seconds * float64(time.Second)))
		} else if number >= it.Count {
			time.Sleep(20 * time.Millisecond)
		}
	}
	if err := reader.CommitUncommittedOffsets(ctx); err != nil {
		return nil, err
	}
	committed, err := kadm.NewClient(sender).FetchOffsets(ctx, it.Topic)
	if err != nil {
		return nil, err
	}
	offset, _ := committed.Lookup(it.Topic, 0)
	return map[string]any{"echoed": number, "committed": offset.At}, nil
}

// secured: `franz secured FILE -`, all cells of the file at a time.
func secured(_ context.Context, file, _ string) {
	ctx, cancel := context.WithTimeout(context.Background(), 280*time.Second)
	defer cancel()
	var cells []cell
	check(json.Unmarshal(must(os.ReadFile(file)), &cells))
	var all sync.WaitGroup
	for _, it := range cells {
		all.Go(func() {
			told, err := it.echo(ctx)
			if err != nil {
				told = map[string]any{"error": err.Error()}
			}
			tell(it.Name, told)
		})
	}
	all.Wait()
}
