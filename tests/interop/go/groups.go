package main

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const partitions = 6

// consumer is one member of a group: it polls until it is closed, and remembers what it owns and saw.
type consumer struct {
	client *kgo.Client
	done   chan struct{}
	lock   sync.Mutex
	owned  map[int32]bool
	seen   map[string]int
}

func join(ctx context.Context, bootstrap, group, topic string, options ...kgo.Opt) *consumer {
	it := &consumer{done: make(chan struct{}), owned: map[int32]bool{}, seen: map[string]int{}}
	change := func(owns bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			it.lock.Lock()
			defer it.lock.Unlock()
			for _, partition := range changed[topic] {
				if owns {
					it.owned[partition] = true
				} else {
					delete(it.owned, partition)
				}
			}
		}
	}
	it.client = must(kgo.NewClient(append([]kgo.Opt{
		seeds(bootstrap), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ClientID("story"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.FetchMaxWait(100 * time.Millisecond), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsRevoked(change(false)), kgo.OnPartitionsLost(change(false)),
	}, options...)...))
	go func() {
		defer close(it.done)
		for {
			fetches := it.client.PollFetches(ctx)
			if fetches.IsClientClosed() || ctx.Err() != nil {
				return
			}
			it.lock.Lock()
			fetches.EachRecord(func(r *kgo.Record) { it.seen[fmt.Sprint(r.Topic, r.Partition, ":", r.Offset)]++ })
			it.lock.Unlock()
			// what was lost to a rebalance meanwhile is somebody else's to commit
			_ = it.client.CommitUncommittedOffsets(ctx)
		}
	}()
	return it
}

func (it *consumer) owns() int {
	it.lock.Lock()
	defer it.lock.Unlock()
	return len(it.owned)
}

func (it *consumer) leave() {
	it.client.Close()
	<-it.done
}

// distinct is how many records the consumers saw together.
func distinct(consumers ...*consumer) int {
	seen := map[string]bool{}
	for _, it := range consumers {
		it.lock.Lock()
		for where := range it.seen {
			seen[where] = true
		}
		it.lock.Unlock()
	}
	return len(seen)
}

func fill(ctx context.Context, client *kgo.Client, topic string, count int) {
	records := make([]*kgo.Record, count)
	for i := range records {
		records[i] = &kgo.Record{Topic: topic, Partition: int32(i % partitions), Value: []byte(fmt.Sprint(i))}
	}
	check(client.ProduceSync(ctx, records...).FirstErr())
}

func prepare(ctx context.Context, bootstrap, topic string, count int) (*kgo.Client, *kadm.Client) {
	client := must(kgo.NewClient(seeds(bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner())))
	admin := kadm.NewClient(client)
	check(must(admin.CreateTopics(ctx, partitions, -1, nil, topic))[topic].Err)
	until(func() any { return len(must(admin.ListTopics(ctx, topic))[topic].Partitions) }, partitions)
	fill(ctx, client, topic, count)
	return client, admin
}

func lag(ctx context.Context, admin *kadm.Client, group string) any {
	told := must(admin.Lag(ctx, group))[group]
	return []any{told.State, told.Protocol, len(told.Members), told.Lag.Total(), code(told.Error())}
}

func described(ctx context.Context, admin *kadm.Client, group string) any {
	told := must(admin.DescribeGroups(ctx, group))[group]
	var members []any
	for _, one := range told.Members {
		assigned, _ := one.Assigned.AsConsumer()
		owned := 0
		if assigned != nil {
			for _, topic := range assigned.Topics {
				owned += len(topic.Partitions)
			}
		}
		instance := ""
		if one.InstanceID != nil {
			instance = *one.InstanceID
		}
		members = append(members, []any{one.ClientID, one.ClientHost, instance, owned})
	}
	sort.Slice(members, func(a, b int) bool { return fmt.Sprint(members[a]) < fmt.Sprint(members[b]) })
	return []any{told.State, told.ProtocolType, told.Protocol, members, code(told.Err)}
}

// groups: every balancer, members that come and go, static members, patterns, and what an admin asks of groups.
func groups(ctx context.Context, bootstrap, topic string) {
	client, admin := prepare(ctx, bootstrap, topic, 600)
	defer client.Close()
	balancers := map[string]kgo.GroupBalancer{
		"cooperative-sticky": kgo.CooperativeStickyBalancer(), "sticky": kgo.StickyBalancer(),
		"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(),
	}
	produced := 600
	for _, name := range []string{"cooperative-sticky", "sticky", "range", "roundrobin"} {
		group := topic + "-" + name
		balanced := kgo.Balancers(balancers[name])
		first := join(ctx, bootstrap, group, topic, balanced)
		until(func() any { return distinct(first) }, produced)
		second := join(ctx, bootstrap, group, topic, balanced)
		third := join(ctx, bootstrap, group, topic, balanced)
		until(func() any { return [3]int{first.owns(), second.owns(), third.owns()} }, [3]int{2, 2, 2})
		tell(name+" shared by three", described(ctx, admin, group))
		fill(ctx, client, topic, 600)
		produced += 600
		until(func() any { return distinct(first, second, third) }, produced)
		second.leave()
		until(func() any { return [2]int{first.owns(), third.owns()} }, [2]int{3, 3})
		first.leave()
		until(func() any { return third.owns() }, partitions)
		until(func() any { return fmt.Sprint(lag(ctx, admin, group)) }, fmt.Sprint([]any{"Stable", name, 1, 0, "none"}))
		third.leave()
		tell(name+" left", lag(ctx, admin, group))
	}
	static(ctx, bootstrap, topic, admin)
	matching(ctx, bootstrap, topic, produced)
	administerGroups(ctx, admin, topic)
}

// static members keep their partitions over a restart, without a rebalance.
func static(ctx context.Context, bootstrap, topic string, admin *kadm.Client) {
	group := topic + "-static"
	instance := func(name string) kgo.Opt { return kgo.InstanceID(name) }
	first := join(ctx, bootstrap, group, topic, instance("one")) // and so the leader
	until(func() any { return first.owns() }, partitions)
	second := join(ctx, bootstrap, group, topic, instance("two"))
	until(func() any { return [2]int{first.owns(), second.owns()} }, [2]int{3, 3})
	until(func() any { return must(admin.DescribeGroups(ctx, group))[group].State }, "Stable")
	tell("static", described(ctx, admin, group))
	second.leave()
	tell("static member away", described(ctx, admin, group))
	again := join(ctx, bootstrap, group, topic, instance("two"))
	until(func() any { return [2]int{first.owns(), again.owns()} }, [2]int{3, 3})
	tell("static member back", described(ctx, admin, group))
	first.leave()
	first = join(ctx, bootstrap, group, topic, instance("one"))
	until(func() any { return [2]int{first.owns(), again.owns()} }, [2]int{3, 3})
	tell("static leader back", described(ctx, admin, group))
	left := must(admin.LeaveGroup(ctx, kadm.LeaveGroup(group).Reason("by the admin").InstanceIDs("one", "two", "three")))
	for _, name := range []string{"one", "two", "three"} {
		tell("sent away "+name, code(left[name].Err))
	}
	first.leave()
	again.leave()
}

// matching: a pattern also finds a topic that comes later.
func matching(ctx context.Context, bootstrap, topic string, produced int) {
	late := topic + "-late"
	first := join(ctx, bootstrap, topic+"-pattern", "^"+topic+"(-late)?$", kgo.ConsumeRegex(),
		kgo.MetadataMinAge(100*time.Millisecond), kgo.MetadataMaxAge(300*time.Millisecond))
	until(func() any { return distinct(first) }, produced)
	client, _ := prepare(ctx, bootstrap, late, 60)
	until(func() any { return distinct(first) }, produced+60)
	first.leave()
	client.Close()
	tell("pattern", produced+60)
}

func administerGroups(ctx context.Context, admin *kadm.Client, topic string) {
	group := topic + "-range"
	listed := []any{}
	for _, one := range must(admin.ListGroups(ctx)).Sorted() {
		if name, is := strings.CutPrefix(one.Group, topic); is {
			listed = append(listed, []any{name, one.ProtocolType, one.State})
		}
	}
	tell("listed", listed)
	_, found := must(admin.ListGroups(ctx, "Stable"))[group]
	tell("listed as stable", found)
	_, found = must(admin.ListGroupsByType(ctx, []string{"consumer"}))[group]
	tell("listed as a consumer group", found)

	wanted := kadm.Offsets{}
	wanted.Add(kadm.Offset{Topic: topic, Partition: 0, At: 17, LeaderEpoch: 0, Metadata: "by the admin"})
	wanted.AddOffset(topic, 1, 18, -1)
	wanted.AddOffset(topic+"-nowhere", 0, 1, -1)
	for _, answer := range must(admin.CommitOffsets(ctx, group, wanted)).Sorted() {
		tell("commit", []any{answer.Topic, answer.Partition, code(answer.Err)})
	}
	for _, answer := range must(admin.FetchOffsets(ctx, group)).Sorted() {
		note := strings.HasPrefix(answer.Metadata, "story-") // the member's id, which a franz-go consumer leaves
		tell("fetch", []any{answer.Topic, answer.Partition, answer.At, answer.LeaderEpoch, note, code(answer.Err)})
	}
	tell("lag", lag(ctx, admin, group))
	many := admin.FetchManyOffsets(ctx, group, topic+"-sticky", topic+"-nobody")
	for _, name := range []string{group, topic + "-sticky", topic + "-nobody"} {
		total := int64(0)
		many[name].Fetched.Each(func(o kadm.OffsetResponse) { total += o.At })
		tell("many", []any{name, total, code(many[name].Err)})
	}
	deleted := must(admin.DeleteOffsets(ctx, group, kadm.TopicsSet{topic: {0: {}, 1: {}}, topic + "-nowhere": {0: {}}}))
	tell("delete offsets", []any{code(deleted[topic][0]), code(deleted[topic][1]), code(deleted[topic+"-nowhere"][0])})
	tell("offsets left", len(must(admin.FetchOffsets(ctx, group))[topic]))
	gone := must(admin.DeleteGroups(ctx, group, topic+"-nobody"))
	tell("delete", []any{code(gone[group].Err), code(gone[topic+"-nobody"].Err)})
	tell("delete again", code(must(admin.DeleteGroups(ctx, group))[group].Err))
	tell("gone", described(ctx, admin, group))
	new := kadm.Offsets{}
	new.AddOffset(topic, 2, 5, -1)
	check(admin.CommitAllOffsets(ctx, topic+"-simple", new))
	tell("a group of offsets alone", described(ctx, admin, topic+"-simple"))
}

// nextGen: the protocol in which the broker assigns (KIP-848).
func nextGen(ctx context.Context, bootstrap, topic string) {
	client, admin := prepare(ctx, bootstrap, topic, 600)
	defer client.Close()
	produced := 600
	balancers := map[string]kgo.GroupBalancer{"uniform": kgo.StickyBalancer(), "range": kgo.RangeBalancer()}
	for _, name := range []string{"uniform", "range"} {
		group := topic + "-" + name
		options := []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(balancers[name])}
		first := join(ctx, bootstrap, group, topic, options...)
		until(func() any { return distinct(first) }, produced)
		second := join(ctx, bootstrap, group, topic, options...)
		until(func() any { return [2]int{first.owns(), second.owns()} }, [2]int{3, 3})
		describe := func() any {
			told := must(admin.DescribeConsumerGroups(ctx, group))[group]
			var members []any
			for _, one := range told.Members {
				members = append(members, []any{one.ClientID, one.ClientHost, len(one.Assignment[topic]), len(one.TargetAssignment[topic]), one.SubscribedTopics})
			}
			return []any{told.State, told.AssignorName, members, code(told.Err)}
		}
		until(func() any { return must(admin.DescribeConsumerGroups(ctx, group))[group].State }, "Stable")
		tell(name+" shared by two", describe())
		fill(ctx, client, topic, 600)
		produced += 600
		until(func() any { return distinct(first, second) }, produced)
		first.leave()
		until(func() any { return second.owns() }, partitions)
		until(func() any { return fmt.Sprint(must(admin.Lag(ctx, group))[group].Lag.Total()) }, "0")
		tell(name+" seen by the classic call", described(ctx, admin, group))
		second.leave()
		tell(name+" left", describe())
		tell(name+" delete", code(must(admin.DeleteGroups(ctx, group))[group].Err))
	}
}
