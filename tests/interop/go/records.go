package main

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	base    = 1_700_000_000_000
	perCode = 300
)

type row struct {
	Partition int32
	Offset    int64
	Millis    int64
	Key       []byte
	Value     []byte
	Headers   []kgo.RecordHeader
}

func administer(ctx context.Context, admin *kadm.Client, topic string) {
	partitions := func() any { return len(must(admin.ListTopics(ctx, topic))[topic].Partitions) }
	retention := "-1" // the records are old
	created := must(admin.CreateTopics(ctx, 2, -1, map[string]*string{"retention.ms": &retention}, topic))
	tell("create", code(created[topic].Err))
	again := must(admin.CreateTopics(ctx, 2, -1, nil, topic))
	tell("create again", code(again[topic].Err))
	tell("four replicas", code(must(admin.CreateTopics(ctx, 1, 4, nil, topic+"-rf"))[topic+"-rf"].Err))
	until(partitions, 2)
	tell("widen", code(must(admin.UpdatePartitions(ctx, 3, topic))[topic].Err))
	until(partitions, 3)
	tell("narrow", code(must(admin.UpdatePartitions(ctx, 1, topic))[topic].Err))

	described := func(key string) any {
		configs := must(admin.DescribeTopicConfigs(ctx, topic))
		for _, config := range must(configs.On(topic, nil)).Configs {
			if config.Key == key {
				return config.MaybeValue()
			}
		}
		return nil
	}
	until(func() any { return described("retention.ms") }, retention)
	compact := "compact"
	change := []kadm.AlterConfig{{Op: kadm.AppendConfig, Name: "cleanup.policy", Value: &compact}}
	tell("append", code(must(admin.AlterTopicConfigs(ctx, change, topic))[0].Err))
	until(func() any { return described("cleanup.policy") }, "delete,compact")
	change = []kadm.AlterConfig{{Op: kadm.DeleteConfig, Name: "cleanup.policy"}}
	tell("delete config", code(must(admin.AlterTopicConfigs(ctx, change, topic))[0].Err))
	until(func() any { return described("cleanup.policy") }, "delete")
}

func produce(ctx context.Context, bootstrap, topic, name string, options ...kgo.Opt) {
	options = append(options, seeds(bootstrap), kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(5*time.Millisecond))
	client := must(kgo.NewClient(options...))
	defer client.Close()
	records := make([]*kgo.Record, perCode)
	for i := range records {
		records[i] = &kgo.Record{
			Partition: int32(i % 3),
			Key:       []byte(fmt.Sprintf("%s-%d", name, i)),
			Value:     []byte(strings.Repeat(fmt.Sprintf("value %d ", i), 30)),
			Headers:   []kgo.RecordHeader{{Key: "codec", Value: []byte(name)}, {Key: "null", Value: nil}},
			Timestamp: time.UnixMilli(base + int64(i)),
		}
		if i%10 == 0 {
			records[i].Value = nil
		}
	}
	results := client.ProduceSync(ctx, records...)
	check(results.FirstErr())
	ends := map[int32]int64{}
	for _, result := range results {
		ends[result.Record.Partition] = max(ends[result.Record.Partition], result.Record.Offset)
	}
	tell("produce "+name, ends)
}

func consume(ctx context.Context, bootstrap, topic string, from kgo.Offset, count int) []row {
	where := map[string]map[int32]kgo.Offset{topic: {0: from, 1: from, 2: from}}
	client := must(kgo.NewClient(seeds(bootstrap), kgo.ConsumePartitions(where)))
	defer client.Close()
	var rows []row
	for len(rows) < count {
		fetches := client.PollFetches(ctx)
		for _, failed := range fetches.Errors() {
			check(failed.Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			rows = append(rows, row{r.Partition, r.Offset, r.Timestamp.UnixMilli(), r.Key, r.Value, r.Headers})
		})
	}
	sort.Slice(rows, func(a, b int) bool {
		return rows[a].Partition < rows[b].Partition ||
			rows[a].Partition == rows[b].Partition && rows[a].Offset < rows[b].Offset
	})
	return rows
}

func offsets(listed kadm.ListedOffsets) map[string]any {
	told := map[string]any{}
	listed.Each(func(o kadm.ListedOffset) {
		told[fmt.Sprint(o.Partition)] = []any{o.Offset, code(o.Err)}
	})
	return told
}

// records: every codec, consuming by partition, and what an admin asks of topics.
func records(ctx context.Context, bootstrap, topic string) {
	client := must(kgo.NewClient(seeds(bootstrap)))
	defer client.Close()
	admin := kadm.NewClient(client)
	administer(ctx, admin, topic)

	codecs := []struct {
		name  string
		codec kgo.CompressionCodec
	}{
		{"none", kgo.NoCompression()}, {"gzip", kgo.GzipCompression()}, {"snappy", kgo.SnappyCompression()},
		{"lz4", kgo.Lz4Compression()}, {"zstd", kgo.ZstdCompression()},
	}
	for _, c := range codecs {
		produce(ctx, bootstrap, topic, c.name, kgo.ProducerBatchCompression(c.codec))
	}
	produce(ctx, bootstrap, topic, "acks-1", kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	total := perCode * (len(codecs) + 1)
	tell("consume", consume(ctx, bootstrap, topic, kgo.NewOffset().AtStart(), total))
	tell("from the end", len(consume(ctx, bootstrap, topic, kgo.NewOffset().AtEnd().Relative(-5), 15)))
	tell("after a time", len(consume(ctx, bootstrap, topic, kgo.NewOffset().AfterMilli(base+150), 1650)))

	tell("start", offsets(must(admin.ListStartOffsets(ctx, topic))))
	tell("end", offsets(must(admin.ListEndOffsets(ctx, topic))))
	tell("committed", offsets(must(admin.ListCommittedOffsets(ctx, topic))))
	tell("after", offsets(must(admin.ListOffsetsAfterMilli(ctx, base+150, topic))))
	tell("newest", offsets(must(admin.ListMaxTimestampOffsets(ctx, topic))))
	epochs := kadm.OffsetForLeaderEpochRequest{}
	epochs.Add(topic, 0, 0)
	for _, answer := range must(admin.OffetForLeaderEpoch(ctx, epochs))[topic] {
		tell("end of epoch", []any{answer.LeaderEpoch, answer.EndOffset, code(answer.Err)})
	}
	wanted := kadm.Offsets{}
	wanted.AddOffset(topic, 1, 50, -1)
	for _, answer := range must(admin.DeleteRecords(ctx, wanted))[topic] {
		tell("delete records", []any{answer.LowWatermark, code(answer.Err)})
	}
	metadata := must(admin.Metadata(ctx, topic))
	known := slices.Contains(metadata.Brokers.NodeIDs(), metadata.Controller)
	tell("cluster", []any{known, len(metadata.Cluster)})
	for _, described := range must(admin.DescribeProducers(ctx, kadm.TopicsSet{topic: {0: {}}}))[topic].Partitions {
		tell("producers", []any{described.Partition, len(described.ActiveProducers), code(described.Err)})
	}
	tell("delete", code(must(admin.DeleteTopics(ctx, topic))[topic].Err))
	until(func() any { return must(admin.ListTopics(ctx)).Has(topic) }, false)
	tell("delete again", code(must(admin.DeleteTopics(ctx, topic))[topic].Err))
}
