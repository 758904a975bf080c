// Program franzgo drives a broker with franz-go (kgo and kadm), by direct partitions and without a group.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kalda.example/compat/internal/command"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func main() {
	command.Run(map[string]command.Verb{
		"produce":         produce,
		"consume":         consume,
		"offset_for_time": offsetForTime,
		"admin":           admin,
		"topic_id":        topicID,
		"consume_topic":   consumeTopic,
		"administer":      administer,
		"read_group":      readGroup,
		"describe_group":  describeGroup,
	})
}

// secured returns the options by which a client reaches the command's brokers.
func secured(c command.Command) ([]kgo.Opt, error) {
	options := []kgo.Opt{kgo.SeedBrokers(c.Bootstrap)}
	config, err := c.Security.TLS()
	if err != nil {
		return nil, err
	}
	if config != nil {
		options = append(options, kgo.DialTLSConfig(config))
	}
	if c.Security.Mechanism == "" {
		return options, nil
	}
	login, err := mechanism(c.Security)
	return append(options, kgo.SASL(login)), err
}

func produce(c command.Command) (any, error) {
	options, err := secured(c)
	if err != nil {
		return nil, err
	}
	options = append(options,
		kgo.ProducerBatchCompression(codecs[c.Codec]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.AllowAutoTopicCreation(),
		kgo.ProducerLinger(20*time.Millisecond),
	)
	if !c.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records := make([]*kgo.Record, 0, len(c.Messages))
	for _, message := range c.Messages {
		record := &kgo.Record{Topic: c.Topic, Partition: 0, Key: message.Key, Value: message.Value}
		record.Timestamp = time.UnixMilli(message.TimestampMs)
		for _, header := range message.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
		}
		records = append(records, record)
	}
	offsets := make([]int64, 0, len(records))
	err = command.InChunks(c, records, func(chunk []*kgo.Record) error {
		results := client.ProduceSync(context.Background(), chunk...)
		for _, result := range results {
			offsets = append(offsets, result.Record.Offset)
		}
		return results.FirstErr()
	})
	return map[string]any{"offsets": offsets}, err
}

func consume(c command.Command) (any, error) {
	start := kgo.NewOffset().At(c.Offset)
	if c.TimestampMs > 0 {
		start = kgo.NewOffset().AfterMilli(c.TimestampMs)
	}
	options, err := secured(c)
	if err != nil {
		return nil, err
	}
	options = append(options, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{c.Topic: {0: start}}))
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	messages := make([]command.Message, 0, c.Count)
	for len(messages) < c.Count {
		fetches := client.PollRecords(context.Background(), c.Count-len(messages))
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for _, record := range fetches.Records() {
			message := command.Message{
				Key: record.Key, Value: record.Value, TimestampMs: record.Timestamp.UnixMilli(), Offset: record.Offset,
			}
			for _, header := range record.Headers {
				message.Headers = append(message.Headers, command.Header{Name: header.Key, Value: header.Value})
			}
			messages = append(messages, message)
		}
	}
	return map[string]any{"messages": messages}, nil
}

// consumeTopic reads all partitions of the topic, without a group, until it has Count records.
func consumeTopic(c command.Command) (any, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(c.Bootstrap),
		kgo.ConsumeTopics(c.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(500*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	values := make([][]byte, 0, c.Count)
	for len(values) < c.Count {
		fetches := client.PollFetches(context.Background())
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for _, record := range fetches.Records() {
			values = append(values, record.Value)
		}
	}
	return map[string]any{"values": values}, nil
}

func adminClient(c command.Command) (*kadm.Client, *kgo.Client, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return nil, nil, err
	}
	return kadm.NewClient(client), client, nil
}

func offsetForTime(c command.Command) (any, error) {
	admin, client, err := adminClient(c)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	listed, err := admin.ListOffsetsAfterMilli(context.Background(), c.TimestampMs, c.Topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, err
	}
	found, _ := listed.Lookup(c.Topic, 0)
	// kadm answers the end of the log where no record is that late; its timestamp is then -1.
	if found.Timestamp == -1 {
		return map[string]any{"offset": -1}, nil
	}
	return map[string]any{"offset": found.Offset}, nil
}

// topicID asks Metadata for the topic by its id alone, as Fetch 13 and later name topics.
func topicID(c command.Command) (any, error) {
	admin, client, err := adminClient(c)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	topics, err := admin.ListTopics(context.Background(), c.Topic)
	if err != nil {
		return nil, err
	}
	request := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.TopicID = topics[c.Topic].ID
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(context.Background(), client)
	if err != nil {
		return nil, err
	}
	found := response.Topics[0]
	if err := kerr.ErrorForCode(found.ErrorCode); err != nil {
		return nil, err
	}
	unknown := request.Topics[0].TopicID
	unknown[15] ^= 0xff
	request.Topics[0].TopicID = unknown
	response, err = request.RequestWith(context.Background(), client)
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"name":          *found.Topic,
		"partitions":    len(found.Partitions),
		"unknown_error": errorCode(kerr.ErrorForCode(response.Topics[0].ErrorCode)),
	}, nil
}

// errorCode returns Kafka's code of the error: 0 is none, and -2 is an error that is not the broker's.
func errorCode(err error) int16 {
	var kafka *kerr.Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &kafka):
		return kafka.Code
	}
	return -2
}

// retention returns the topic's retention.ms with where it comes from (1 is the topic itself, 5 a default).
func retention(admin *kadm.Client, topic string) (string, error) {
	configs, err := admin.DescribeTopicConfigs(context.Background(), topic)
	if err != nil {
		return "", err
	}
	resource, err := configs.On(topic, nil)
	if err == nil {
		err = resource.Err
	}
	if err != nil {
		return "", err
	}
	for _, config := range resource.Configs {
		if config.Key == "retention.ms" {
			return fmt.Sprintf("%s from %d", config.MaybeValue(), config.Source), nil
		}
	}
	return "", fmt.Errorf("retention.ms is not among the %d configs of the topic", len(resource.Configs))
}

func partitionCount(admin *kadm.Client, topic string) (int, error) {
	topics, err := admin.ListTopics(context.Background(), topic)
	if err != nil {
		return 0, err
	}
	return len(topics[topic].Partitions), topics[topic].Err
}

// admin takes one topic through its life; each step's outcome is in the result.
func admin(c command.Command) (any, error) {
	admin, client, err := adminClient(c)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx := context.Background()
	result := map[string]any{}

	metadata, err := admin.BrokerMetadata(ctx)
	if err != nil {
		return nil, err
	}
	result["cluster_id"] = metadata.Cluster
	result["brokers"] = len(metadata.Brokers)

	first := "5000000"
	_, err = admin.CreateTopic(ctx, 3, 1, map[string]*string{"retention.ms": &first}, c.Topic)
	if err != nil {
		return nil, err
	}
	_, err = admin.CreateTopic(ctx, 3, 1, nil, c.Topic)
	result["duplicate_error"] = errorCode(err)
	_, err = admin.CreateTopic(ctx, 1, 1, map[string]*string{"no.such": &first}, c.Topic+"-bad")
	result["bad_config_error"] = errorCode(err)
	if result["partitions"], err = partitionCount(admin, c.Topic); err != nil {
		return nil, err
	}
	if result["retention"], err = retention(admin, c.Topic); err != nil {
		return nil, err
	}
	if err := alterConfigs(admin, c.Topic, result); err != nil {
		return nil, err
	}

	grown, err := admin.UpdatePartitions(ctx, 5, c.Topic)
	if err == nil {
		err = grown.Error()
	}
	if err != nil {
		return nil, err
	}
	if result["grown_partitions"], err = partitionCount(admin, c.Topic); err != nil {
		return nil, err
	}
	if err := deleteRecords(admin, client, c.Topic, result); err != nil {
		return nil, err
	}

	brokers, err := admin.DescribeBrokerConfigs(ctx, metadata.Brokers[0].NodeID)
	if err != nil {
		return nil, err
	}
	result["broker_configs"] = len(brokers[0].Configs) > 0 && brokers[0].Err == nil

	deleted, err := admin.DeleteTopics(ctx, c.Topic)
	if err == nil {
		err = deleted.Error()
	}
	if err != nil {
		return nil, err
	}
	listed, err := admin.ListTopics(ctx)
	if err != nil {
		return nil, err
	}
	result["is_listed_after_deletion"] = listed.Has(c.Topic)
	return result, nil
}

func alterConfigs(admin *kadm.Client, topic string, result map[string]any) error {
	ctx := context.Background()
	altered, other := "7000000", "8000000"
	incremental := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &altered}}
	responses, err := admin.AlterTopicConfigs(ctx, incremental, topic)
	if err == nil {
		err = responses[0].Err
	}
	if err != nil {
		return err
	}
	if result["altered_retention"], err = retention(admin, topic); err != nil {
		return err
	}
	responses, err = admin.AlterTopicConfigsState(ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: &other}}, topic)
	if err == nil {
		err = responses[0].Err
	}
	if err != nil {
		return err
	}
	result["replaced_retention"], err = retention(admin, topic)
	return err
}

func deleteRecords(admin *kadm.Client, client *kgo.Client, topic string, result map[string]any) error {
	ctx := context.Background()
	for n := range 10 {
		record := &kgo.Record{Topic: topic, Partition: 0, Value: []byte{byte(n)}, Timestamp: time.UnixMilli(1_700_000_000_000 + int64(n))}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
	}
	before := kadm.Offsets{}
	before.Add(kadm.Offset{Topic: topic, Partition: 0, At: 4})
	deleted, err := admin.DeleteRecords(ctx, before)
	if err == nil {
		err = deleted.Error()
	}
	if err != nil {
		return err
	}
	starts, err := admin.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return err
	}
	start, _ := starts.Lookup(topic, 0)
	result["start_offset"] = start.Offset
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return err
	}
	end, _ := ends.Lookup(topic, 0)
	result["end_offset"] = end.Offset
	latest, err := admin.ListMaxTimestampOffsets(ctx, topic)
	if err == nil {
		err = latest.Error()
	}
	if err != nil {
		return err
	}
	max, _ := latest.Lookup(topic, 0)
	result["max_timestamp_offset"] = max.Offset
	return nil
}
