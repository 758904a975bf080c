// Program kafkago drives a broker with segmentio/kafka-go: a writer, a reader of one partition, and the client.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kalda.example/compat/internal/command"

	"github.com/segmentio/kafka-go"
)

var codecs = map[string]kafka.Compression{
	"none":   0,
	"gzip":   kafka.Gzip,
	"snappy": kafka.Snappy,
	"lz4":    kafka.Lz4,
	"zstd":   kafka.Zstd,
}

func main() {
	command.Run(map[string]command.Verb{
		"produce":         produce,
		"consume":         consume,
		"offset_for_time": offsetForTime,
		"admin":           admin,
	})
}

func produce(c command.Command) (any, error) {
	writer := &kafka.Writer{
		Addr:                   kafka.TCP(c.Bootstrap),
		Topic:                  c.Topic,
		Balancer:               kafka.BalancerFunc(func(kafka.Message, ...int) int { return 0 }),
		RequiredAcks:           kafka.RequireAll,
		Compression:            codecs[c.Codec],
		BatchTimeout:           20 * time.Millisecond,
		AllowAutoTopicCreation: true,
	}
	messages := make([]kafka.Message, 0, len(c.Messages))
	for _, message := range c.Messages {
		sent := kafka.Message{Key: message.Key, Value: message.Value, Time: time.UnixMilli(message.TimestampMs)}
		for _, header := range message.Headers {
			sent.Headers = append(sent.Headers, kafka.Header{Key: header.Name, Value: header.Value})
		}
		messages = append(messages, sent)
	}
	err := writer.WriteMessages(context.Background(), messages...)
	// Its manual has users retry by themselves while a topic is being created.
	for errors.Is(err, kafka.LeaderNotAvailable) || errors.Is(err, kafka.UnknownTopicOrPartition) {
		time.Sleep(100 * time.Millisecond)
		err = writer.WriteMessages(context.Background(), messages...)
	}
	if err != nil {
		return nil, err
	}
	// The writer does not tell offsets.
	return map[string]any{}, writer.Close()
}

func reader(c command.Command) *kafka.Reader {
	return kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{c.Bootstrap}, Topic: c.Topic, Partition: 0, MaxWait: 500 * time.Millisecond,
	})
}

func consume(c command.Command) (any, error) {
	reader := reader(c)
	defer reader.Close()
	if err := reader.SetOffset(c.Offset); err != nil {
		return nil, err
	}
	messages := make([]command.Message, 0, c.Count)
	for len(messages) < c.Count {
		record, err := reader.ReadMessage(context.Background())
		if err != nil {
			return nil, err
		}
		message := command.Message{
			Key: record.Key, Value: record.Value, TimestampMs: record.Time.UnixMilli(), Offset: record.Offset,
		}
		for _, header := range record.Headers {
			message.Headers = append(message.Headers, command.Header{Name: header.Key, Value: header.Value})
		}
		messages = append(messages, message)
	}
	return map[string]any{"messages": messages}, nil
}

func offsetForTime(c command.Command) (any, error) {
	reader := reader(c)
	defer reader.Close()
	if err := reader.SetOffsetAt(context.Background(), time.UnixMilli(c.TimestampMs)); err != nil {
		return nil, err
	}
	return map[string]any{"offset": reader.Offset()}, nil
}

// errorCode returns Kafka's code of the error: 0 is none, and -2 is an error that is not the broker's.
func errorCode(err error) int {
	var code kafka.Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	return -2
}

// metadata asks on a connection of its own: a transport answers from what it has for its MetadataTTL of 6 s.
func metadata(client *kafka.Client, topics ...string) (*kafka.MetadataResponse, error) {
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	fresh := &kafka.Client{Addr: client.Addr, Timeout: client.Timeout, Transport: transport}
	return fresh.Metadata(context.Background(), &kafka.MetadataRequest{Topics: topics})
}

func partitionCount(client *kafka.Client, topic string) (int, error) {
	found, err := metadata(client, topic)
	if err != nil {
		return 0, err
	}
	return len(found.Topics[0].Partitions), found.Topics[0].Error
}

// retention returns the topic's retention.ms with where it comes from (1 is the topic itself, 5 a default).
func retention(client *kafka.Client, topic string) (string, error) {
	response, err := client.DescribeConfigs(context.Background(), &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{"retention.ms"},
		}},
	})
	if err != nil {
		return "", err
	}
	resource := response.Resources[0]
	if resource.Error != nil {
		return "", resource.Error
	}
	if len(resource.ConfigEntries) != 1 {
		return "", fmt.Errorf("%d configs for one name", len(resource.ConfigEntries))
	}
	return fmt.Sprintf("%s from %d", resource.ConfigEntries[0].ConfigValue, resource.ConfigEntries[0].ConfigSource), nil
}

func create(client *kafka.Client, topic string, partitions int, setting string) error {
	response, err := client.CreateTopics(context.Background(), &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{
			Topic: topic, NumPartitions: partitions, ReplicationFactor: 1,
			ConfigEntries: []kafka.ConfigEntry{{ConfigName: setting, ConfigValue: "5000000"}},
		}},
	})
	if err != nil {
		return err
	}
	return response.Errors[topic]
}

// admin takes one topic through its life; each step's outcome is in the result.
func admin(c command.Command) (any, error) {
	client := &kafka.Client{Addr: kafka.TCP(c.Bootstrap), Timeout: command.Timeout}
	ctx := context.Background()
	result := map[string]any{}
	cluster, err := metadata(client)
	if err != nil {
		return nil, err
	}
	result["brokers"] = len(cluster.Brokers)
	result["cluster_id"] = cluster.ClusterID

	if err := create(client, c.Topic, 3, "retention.ms"); err != nil {
		return nil, err
	}
	result["duplicate_error"] = errorCode(create(client, c.Topic, 3, "retention.ms"))
	result["bad_config_error"] = errorCode(create(client, c.Topic+"-bad", 1, "no.such"))
	if result["partitions"], err = partitionCount(client, c.Topic); err != nil {
		return nil, err
	}
	if result["retention"], err = retention(client, c.Topic); err != nil {
		return nil, err
	}
	if err := alterConfigs(client, c.Topic, result); err != nil {
		return nil, err
	}

	grown, err := client.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{{Name: c.Topic, Count: 5}},
	})
	if err == nil {
		err = grown.Errors[c.Topic]
	}
	if err != nil {
		return nil, err
	}
	if result["grown_partitions"], err = partitionCount(client, c.Topic); err != nil {
		return nil, err
	}
	if err := listOffsets(c, client, result); err != nil {
		return nil, err
	}

	deleted, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{c.Topic}})
	if err == nil {
		err = deleted.Errors[c.Topic]
	}
	if err != nil {
		return nil, err
	}
	if cluster, err = metadata(client); err != nil {
		return nil, err
	}
	result["is_listed_after_deletion"] = false
	for _, topic := range cluster.Topics {
		if topic.Name == c.Topic {
			result["is_listed_after_deletion"] = true
		}
	}
	return result, nil
}

func alterConfigs(client *kafka.Client, topic string, result map[string]any) error {
	ctx := context.Background()
	altered, err := client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{{
				Name: "retention.ms", Value: "7000000", ConfigOperation: kafka.ConfigOperationSet,
			}},
		}},
	})
	if err == nil {
		err = altered.Resources[0].Error
	}
	if err != nil {
		return err
	}
	if result["altered_retention"], err = retention(client, topic); err != nil {
		return err
	}
	replaced, err := client.AlterConfigs(ctx, &kafka.AlterConfigsRequest{
		Resources: []kafka.AlterConfigRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
			Configs: []kafka.AlterConfigRequestConfig{{Name: "retention.ms", Value: "8000000"}},
		}},
	})
	if err != nil {
		return err
	}
	for _, err := range replaced.Errors {
		if err != nil {
			return err
		}
	}
	result["replaced_retention"], err = retention(client, topic)
	return err
}

func listOffsets(c command.Command, client *kafka.Client, result map[string]any) error {
	filled := c
	filled.Codec = "none"
	for n := range 10 {
		filled.Messages = append(filled.Messages, command.Message{Value: []byte{byte(n)}, TimestampMs: time.Now().UnixMilli()})
	}
	if _, err := produce(filled); err != nil {
		return err
	}
	listed, err := client.ListOffsets(context.Background(), &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{c.Topic: {kafka.FirstOffsetOf(0), kafka.LastOffsetOf(0)}},
	})
	if err != nil {
		return err
	}
	offsets := listed.Topics[c.Topic][0]
	result["start_offset"], result["end_offset"] = offsets.FirstOffset, offsets.LastOffset
	return offsets.Error
}
