// Program sarama drives a broker with Sarama, which speaks the protocol of the Kafka version it is set to.
package main

import (
	"errors"
	"fmt"
	"time"

	"kalda.example/compat/internal/command"

	"github.com/IBM/sarama"
)

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

func main() {
	command.Run(map[string]command.Verb{
		"produce":         produce,
		"consume":         consume,
		"offset_for_time": offsetForTime,
		"admin":           admin,
		"administer":      administer,
		"read_group":      readGroup,
		"describe_group":  describeGroup,
	})
}

// configuration takes "max" as the newest version that Sarama knows.
func configuration(c command.Command) (*sarama.Config, error) {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	if c.Version != "max" {
		version, err := sarama.ParseKafkaVersion(c.Version)
		if err != nil {
			return nil, err
		}
		config.Version = version
	}
	tls, err := c.Security.TLS()
	if err != nil {
		return nil, err
	}
	config.Net.TLS.Enable, config.Net.TLS.Config = tls != nil, tls
	logIn(config, c.Security)
	return config, nil
}

func produce(c command.Command) (any, error) {
	config, err := configuration(c)
	if err != nil {
		return nil, err
	}
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Compression = codecs[c.Codec]
	config.Producer.Flush.Frequency = 20 * time.Millisecond
	config.Producer.Return.Successes = true
	// The default of 3 tries ends before a broker is back; 100 ms are between two.
	config.Producer.Retry.Max = 100
	// An idempotent batch is given up when its leader is not found, after 3 tries of 250 ms by default.
	config.Metadata.Retry.Max = 100
	if c.Idempotent {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewSyncProducer([]string{c.Bootstrap}, config)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	messages := make([]*sarama.ProducerMessage, 0, len(c.Messages))
	for _, message := range c.Messages {
		sent := &sarama.ProducerMessage{Topic: c.Topic, Partition: 0, Timestamp: time.UnixMilli(message.TimestampMs)}
		// A ByteEncoder of nil would be sent as empty; only a missing encoder is null.
		if message.Key != nil {
			sent.Key = sarama.ByteEncoder(message.Key)
		}
		if message.Value != nil {
			sent.Value = sarama.ByteEncoder(message.Value)
		}
		for _, header := range message.Headers {
			sent.Headers = append(sent.Headers, sarama.RecordHeader{Key: []byte(header.Name), Value: header.Value})
		}
		messages = append(messages, sent)
	}
	if err := command.InChunks(c, messages, producer.SendMessages); err != nil {
		var failures sarama.ProducerErrors
		if errors.As(err, &failures) {
			return nil, failures[0].Err
		}
		return nil, err
	}
	offsets := make([]int64, 0, len(messages))
	for _, message := range messages {
		offsets = append(offsets, message.Offset)
	}
	return map[string]any{"offsets": offsets}, nil
}

func consume(c command.Command) (any, error) {
	config, err := configuration(c)
	if err != nil {
		return nil, err
	}
	config.Consumer.Return.Errors = true
	consumer, err := sarama.NewConsumer([]string{c.Bootstrap}, config)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(c.Topic, 0, c.Offset)
	if err != nil {
		return nil, err
	}
	defer partition.Close()
	messages := make([]command.Message, 0, c.Count)
	for len(messages) < c.Count {
		select {
		case err := <-partition.Errors():
			return nil, err
		case record := <-partition.Messages():
			message := command.Message{
				Key: record.Key, Value: record.Value, TimestampMs: record.Timestamp.UnixMilli(), Offset: record.Offset,
			}
			for _, header := range record.Headers {
				message.Headers = append(message.Headers, command.Header{Name: string(header.Key), Value: header.Value})
			}
			messages = append(messages, message)
		}
	}
	return map[string]any{"messages": messages}, nil
}

func offsetForTime(c command.Command) (any, error) {
	config, err := configuration(c)
	if err != nil {
		return nil, err
	}
	client, err := sarama.NewClient([]string{c.Bootstrap}, config)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	offset, err := client.GetOffset(c.Topic, 0, c.TimestampMs)
	if err != nil {
		return nil, err
	}
	return map[string]any{"offset": offset}, nil
}

// errorCode returns Kafka's code of the error: 0 is none, and -2 is an error that is not the broker's.
func errorCode(err error) int16 {
	var kafka sarama.KError
	var topic *sarama.TopicError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &topic):
		return int16(topic.Err)
	case errors.As(err, &kafka):
		return int16(kafka)
	}
	return -2
}

func partitionCount(admin sarama.ClusterAdmin, topic string) (int, error) {
	described, err := admin.DescribeTopics([]string{topic})
	if err != nil {
		return 0, err
	}
	if described[0].Err != sarama.ErrNoError {
		return 0, described[0].Err
	}
	return len(described[0].Partitions), nil
}

// retention returns the topic's retention.ms with where it comes from (1 is the topic itself, 5 a default).
func retention(admin sarama.ClusterAdmin, topic string) (string, error) {
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})
	if err != nil {
		return "", err
	}
	for _, entry := range entries {
		if entry.Name == "retention.ms" {
			if entry.Source == sarama.SourceUnknown {
				return fmt.Sprintf("%s default=%v", entry.Value, entry.Default), nil
			}
			return fmt.Sprintf("%s from %d", entry.Value, entry.Source), nil
		}
	}
	return "", fmt.Errorf("retention.ms is not among the %d configs of the topic", len(entries))
}

// admin takes one topic through its life; each step's outcome is in the result.
func admin(c command.Command) (any, error) {
	config, err := configuration(c)
	if err != nil {
		return nil, err
	}
	admin, err := sarama.NewClusterAdmin([]string{c.Bootstrap}, config)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	result := map[string]any{}
	brokers, _, err := admin.DescribeCluster()
	if err != nil {
		return nil, err
	}
	result["brokers"] = len(brokers)

	first := "5000000"
	detail := sarama.TopicDetail{
		NumPartitions: 3, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &first},
	}
	if err := admin.CreateTopic(c.Topic, &detail, false); err != nil {
		return nil, err
	}
	result["duplicate_error"] = errorCode(admin.CreateTopic(c.Topic, &detail, false))
	bad := sarama.TopicDetail{
		NumPartitions: 1, ReplicationFactor: 1, ConfigEntries: map[string]*string{"no.such": &first},
	}
	result["bad_config_error"] = errorCode(admin.CreateTopic(c.Topic+"-bad", &bad, false))
	if result["partitions"], err = partitionCount(admin, c.Topic); err != nil {
		return nil, err
	}
	if result["retention"], err = retention(admin, c.Topic); err != nil {
		return nil, err
	}
	if err := alterConfigs(admin, config, c.Topic, result); err != nil {
		return nil, err
	}

	if config.Version.IsAtLeast(sarama.V1_0_0_0) {
		if err := admin.CreatePartitions(c.Topic, 5, nil, false); err != nil {
			return nil, err
		}
		if result["grown_partitions"], err = partitionCount(admin, c.Topic); err != nil {
			return nil, err
		}
	}
	if err := deleteRecords(c, admin, config, result); err != nil {
		return nil, err
	}

	broker := sarama.ConfigResource{Type: sarama.BrokerResource, Name: fmt.Sprint(brokers[0].ID())}
	entries, err := admin.DescribeConfig(broker)
	if err != nil {
		return nil, err
	}
	result["broker_configs"] = len(entries) > 0

	if err := admin.DeleteTopic(c.Topic); err != nil {
		return nil, err
	}
	topics, err := admin.ListTopics()
	if err != nil {
		return nil, err
	}
	_, result["is_listed_after_deletion"] = topics[c.Topic]
	return result, nil
}

func alterConfigs(admin sarama.ClusterAdmin, config *sarama.Config, topic string, result map[string]any) error {
	altered, replaced := "7000000", "8000000"
	if config.Version.IsAtLeast(sarama.V2_3_0_0) {
		entries := map[string]sarama.IncrementalAlterConfigsEntry{
			"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &altered},
		}
		if err := admin.IncrementalAlterConfig(sarama.TopicResource, topic, entries, false); err != nil {
			return err
		}
		found, err := retention(admin, topic)
		if err != nil {
			return err
		}
		result["altered_retention"] = found
	}
	entries := map[string]*string{"retention.ms": &replaced}
	if err := admin.AlterConfig(sarama.TopicResource, topic, entries, false); err != nil {
		return err
	}
	found, err := retention(admin, topic)
	result["replaced_retention"] = found
	return err
}

func deleteRecords(c command.Command, admin sarama.ClusterAdmin, config *sarama.Config, result map[string]any) error {
	filled := c
	filled.Codec = "none"
	for n := range 10 {
		filled.Messages = append(filled.Messages, command.Message{Value: []byte{byte(n)}, TimestampMs: time.Now().UnixMilli()})
	}
	if _, err := produce(filled); err != nil {
		return err
	}
	if err := admin.DeleteRecords(c.Topic, map[int32]int64{0: 4}); err != nil {
		return err
	}
	client, err := sarama.NewClient([]string{c.Bootstrap}, config)
	if err != nil {
		return err
	}
	defer client.Close()
	if result["start_offset"], err = client.GetOffset(c.Topic, 0, sarama.OffsetOldest); err != nil {
		return err
	}
	result["end_offset"], err = client.GetOffset(c.Topic, 0, sarama.OffsetNewest)
	return err
}
