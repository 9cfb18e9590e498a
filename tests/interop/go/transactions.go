package main

import (
	"context"
	"fmt"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// transactions: ends of both kinds, what each isolation level sees, fencing, what an admin is told meanwhile, and
// a copier that takes offsets and copies into one transaction.
func transactions(ctx context.Context, bootstrap, topic string) {
	client, admin := prepare(ctx, bootstrap, topic, 0)
	defer client.Close()
	producer := transactional(bootstrap, topic)
	for step, commit := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit, kgo.TryCommit} {
		check(producer.BeginTransaction())
		if step < 3 {
			send(ctx, producer, topic, fmt.Sprint("transaction ", step))
			tell("ongoing", transaction(ctx, admin, topic))
			tell("its producers", producers(ctx, admin, topic))
		}
		tell("end", code(producer.EndTransaction(ctx, commit)))
	}
	until(func() any { return must(admin.DescribeTransactions(ctx, topic+"-id"))[topic+"-id"].State }, "CompleteCommit")
	tell("at the end", transaction(ctx, admin, topic))
	tell("uncommitted", read(ctx, bootstrap, topic, 36, kgo.ReadUncommitted()))
	tell("committed", read(ctx, bootstrap, topic, 24, kgo.ReadCommitted()))
	tell("ends", offsets(must(admin.ListEndOffsets(ctx, topic))))

	// an open transaction holds readers of committed records back, and nobody else
	check(producer.BeginTransaction())
	send(ctx, producer, topic, "open")
	tell("stable ends", offsets(must(admin.ListCommittedOffsets(ctx, topic))))
	tell("held back", read(ctx, bootstrap, topic, 24, kgo.ReadCommitted()))

	// the next producer of the same id aborts it and fences its owner
	other := transactional(bootstrap, topic)
	check(other.BeginTransaction())
	send(ctx, other, topic, "of the other")
	check(other.EndTransaction(ctx, kgo.TryCommit))
	late := producer.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: 0, Value: []byte("too late")})
	tell("fenced", late.FirstErr() != nil)
	producer.Close()
	other.Close()
	tell("after fencing", read(ctx, bootstrap, topic, 36, kgo.ReadCommitted()))
	tell("listed", listed(ctx, admin, topic))
	copies(ctx, bootstrap, topic, admin)
}

func transactional(bootstrap, topic string) *kgo.Client {
	return must(kgo.NewClient(seeds(bootstrap), kgo.TransactionalID(topic+"-id"),
		kgo.TransactionTimeout(30*time.Second), kgo.RecordPartitioner(kgo.ManualPartitioner())))
}

func send(ctx context.Context, producer *kgo.Client, topic, name string) {
	for i := range 12 {
		record := &kgo.Record{Topic: topic, Partition: int32(i % partitions), Value: []byte(fmt.Sprint(name, " ", i))}
		check(producer.ProduceSync(ctx, record).FirstErr())
	}
}

func transaction(ctx context.Context, admin *kadm.Client, topic string) any {
	told := must(admin.DescribeTransactions(ctx, topic+"-id"))[topic+"-id"]
	return []any{told.State, told.TimeoutMillis, told.ProducerEpoch, told.StartTimestamp > 0, len(told.Topics[topic]), code(told.Err)}
}

func producers(ctx context.Context, admin *kadm.Client, topic string) any {
	var all []any
	for _, partition := range must(admin.DescribeProducers(ctx, kadm.TopicsSet{topic: {0: {}, 1: {}}}))[topic].Partitions.Sorted() {
		for _, one := range partition.ActiveProducers.Sorted() {
			all = append(all, []any{one.Partition, one.ProducerEpoch, one.LastSequence, one.CurrentTxnStartOffset})
		}
	}
	return all
}

func listed(ctx context.Context, admin *kadm.Client, topic string) any {
	var states []string
	for _, one := range must(admin.ListTransactions(ctx, nil, nil)).Sorted() {
		if one.TxnID == topic+"-id" {
			states = append(states, one.State)
		}
	}
	_, ongoing := must(admin.ListTransactions(ctx, nil, []string{"Ongoing"}))[topic+"-id"]
	matched := must(admin.ListTransactionsByTxPattern(ctx, nil, nil, ".*"+topic+"-i.")).Sorted()
	return []any{states, ongoing, len(matched)}
}

// read returns the first records at one isolation level, by partition and offset.
func read(ctx context.Context, bootstrap, topic string, count int, level kgo.IsolationLevel) []string {
	start := kgo.NewOffset().AtStart()
	where := map[int32]kgo.Offset{}
	for partition := range int32(partitions) {
		where[partition] = start
	}
	client := must(kgo.NewClient(seeds(bootstrap), kgo.FetchIsolationLevel(level),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: where})))
	defer client.Close()
	var rows []string
	for len(rows) < count {
		fetches := client.PollFetches(ctx)
		for _, failed := range fetches.Errors() {
			check(failed.Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			rows = append(rows, fmt.Sprintf("%d %02d %s", r.Partition, r.Offset, r.Value))
		})
	}
	sort.Strings(rows)
	return rows
}

// copies: two sessions of one group copy everything, one gives up its first transaction.
func copies(ctx context.Context, bootstrap, topic string, admin *kadm.Client) {
	target, group := topic+"-copies", topic+"-copiers"
	check(must(admin.CreateTopics(ctx, partitions, -1, nil, target))[target].Err)
	until(func() any { return len(must(admin.ListTopics(ctx, target))[target].Partitions) }, partitions)
	committed := make(chan int)
	copier := func(name string, end kgo.TransactionEndTry) *kgo.GroupTransactSession {
		session := must(kgo.NewGroupTransactSession(seeds(bootstrap), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
			kgo.TransactionalID(group+name), kgo.DefaultProduceTopic(target), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
			kgo.RequireStableFetchOffsets(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.HeartbeatInterval(200*time.Millisecond), kgo.FetchMaxWait(100*time.Millisecond)))
		go func() {
			for ctx.Err() == nil {
				fetches := session.PollRecords(ctx, 7)
				if fetches.IsClientClosed() {
					return
				}
				check(session.Begin())
				count := 0
				fetches.EachRecord(func(r *kgo.Record) {
					count++
					session.Produce(ctx, kgo.SliceRecord(append([]byte("copy of "), r.Value...)), nil)
				})
				if done, err := session.End(ctx, end); done && err == nil {
					committed <- count
				}
				end = kgo.TryCommit
			}
		}()
		return session
	}
	first, second := copier("-one", kgo.TryAbort), copier("-two", kgo.TryCommit)
	for total := 0; total < 36; {
		select {
		case count := <-committed:
			total += count
		case <-ctx.Done():
			check(ctx.Err())
		}
	}
	var values []string
	for _, row := range read(ctx, bootstrap, target, 36, kgo.ReadCommitted()) {
		values = append(values, row[5:]) // where a copy lies is up to the partitioner
	}
	sort.Strings(values)
	tell("copies", values)
	go func() { // a copier may have one more to tell of
		for range committed {
		}
	}()
	first.Close()
	second.Close()
}
