package main

import (
	"bufio"
	"context"
	"os"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// member: one member of somebody else's group, `franz member BOOTSTRAP TOPIC GROUP ASSIGNOR`. It prints its
// partitions whenever they change and the value of every record, and leaves when it is sent a line.
func member(ctx context.Context, bootstrap, topic string) {
	group, assignor := os.Args[4], os.Args[5]
	balancer := map[string]kgo.GroupBalancer{"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer()}[assignor]
	assigned := func(_ context.Context, _ *kgo.Client, now map[string][]int32) {
		sort.Slice(now[topic], func(a, b int) bool { return now[topic][a] < now[topic][b] })
		tell("assigned", now[topic])
	}
	client := must(kgo.NewClient(seeds(bootstrap), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.Balancers(balancer), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.OnPartitionsAssigned(assigned),
		kgo.HeartbeatInterval(300*time.Millisecond), kgo.FetchMaxWait(100*time.Millisecond), kgo.DisableAutoCommit()))
	go func() {
		bufio.NewScanner(os.Stdin).Scan()
		client.Close()
	}()
	for {
		fetches := client.PollFetches(ctx)
		if fetches.IsClientClosed() {
			return
		}
		fetches.EachRecord(func(r *kgo.Record) { tell("record", string(r.Value)) })
		_ = client.CommitUncommittedOffsets(ctx) // refused during a rebalance: the next owner reads them again
	}
}
