// Program sharer is a worker of a share group on franz-go, for the chaos rounds: it notes each delivery on stdout
// as tests/chaos/share_worker.py does, and then acknowledges it by the same rule.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	recordsMax   = 50
	flushTime    = 10 * time.Second // longer than a leader's election; records come again anyway
	releaseEvery = 20               // as in share_worker.py
	rejectEvery  = 50
)

func main() {
	bootstrap := flag.String("bootstrap", "", "addresses of brokers")
	topic := flag.String("topic", "", "the topic to read")
	group := flag.String("group", "", "the share group")
	flag.Parse()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(*bootstrap, ",")...),
		kgo.ShareGroup(*group),
		kgo.ConsumeTopics(*topic),
		kgo.ShareMaxRecords(recordsMax),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for {
		fetches := client.PollRecords(context.Background(), recordsMax)
		fetches.EachError(func(topic string, partition int32, err error) {
			fmt.Fprintf(os.Stderr, "%s-%d: %v\n", topic, partition, err)
		})
		if fetches.NumRecords() == 0 {
			continue
		}
		fetches.EachRecord(func(record *kgo.Record) {
			outcome, status := decide(string(record.Value), record.DeliveryCount())
			fmt.Printf("%d %d %d %s %d\n", record.Partition, record.Offset, record.DeliveryCount(), outcome, time.Now().UnixMilli())
			record.Ack(status)
		})
		ctx, cancel := context.WithTimeout(context.Background(), flushTime)
		if err := client.FlushAcks(ctx); err != nil {
			fmt.Fprintf(os.Stderr, "flush: %v\n", err)
		}
		cancel()
	}
}

func decide(value string, deliveries int32) (string, kgo.AckStatus) {
	number, err := strconv.Atoi(value)
	switch {
	case err == nil && number%rejectEvery == 0:
		return "reject", kgo.AckReject
	case err == nil && number%releaseEvery == 1 && deliveries == 1:
		return "release", kgo.AckRelease
	}
	return "accept", kgo.AckAccept
}
