// Program copier is a transactional copier on franz-go, for the chaos rounds: consume, produce, commit offsets
// and output as one. It takes the flags of tests/chaos/copier.py and follows the same rules: abort what can be
// aborted, begin again with a new client where the old one is fenced or gave up.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	group              = "copiers"
	sessionTimeout     = 6 * time.Second
	heartbeatInterval  = time.Second
	transactionTimeout = 10 * time.Second
	recordsMax         = 200
	pollTime           = 200 * time.Millisecond
	endTime            = 15 * time.Second // a transaction and a session: who takes longer is fenced anyway
	closeTime          = 2 * time.Second
	pause              = 200 * time.Millisecond
)

type options struct {
	bootstrap, source, target, protocol string
	number, life                        int
}

func main() {
	var o options
	flag.StringVar(&o.bootstrap, "bootstrap", "", "addresses of brokers")
	flag.StringVar(&o.source, "source", "", "the topic to copy")
	flag.StringVar(&o.target, "target", "", "the topic to copy to")
	flag.StringVar(&o.protocol, "protocol", "classic", "classic or consumer")
	flag.IntVar(&o.number, "number", 0, "which copier")
	flag.IntVar(&o.life, "life", 0, "how often it was started")
	flag.Parse()
	for {
		say(o, "begins again: %v", copyUntilFailure(o))
		time.Sleep(pause)
	}
}

func say(o options, format string, arguments ...any) {
	now := time.Now().UTC().Format("15:04:05.000")
	fmt.Fprintf(os.Stderr, "%s copier %d (%d): %s\n", now, o.number, os.Getpid(), fmt.Sprintf(format, arguments...))
}

func copyUntilFailure(o options) error {
	session, err := kgo.NewGroupTransactSession(clientOptions(o)...)
	if err != nil {
		return err
	}
	defer closeSession(session)
	for {
		if err := copySome(o, session); err != nil {
			return err
		}
	}
}

func clientOptions(o options) []kgo.Opt {
	chosen := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(o.bootstrap, ",")...),
		kgo.ClientID(fmt.Sprintf("copier-%d-%d", o.number, o.life)),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(o.source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.SessionTimeout(sessionTimeout),
		kgo.RebalanceTimeout(sessionTimeout),
		kgo.HeartbeatInterval(heartbeatInterval),
		kgo.TransactionalID(fmt.Sprintf("copier-%d", o.number)),
		kgo.TransactionTimeout(transactionTimeout),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.UnknownTopicRetries(-1),
		// Brokers are killed: a connection that ends says nothing about their security settings.
		kgo.AlwaysRetryEOF(),
	}
	if o.protocol == "consumer" {
		return append(chosen, kgo.ServerSideBalancer())
	}
	return append(chosen, kgo.Balancers(kgo.RangeBalancer()))
}

// copySome copies what one poll returns, in one transaction. An error ends the client's life.
func copySome(o options, session *kgo.GroupTransactSession) error {
	polling, stopPolling := context.WithTimeout(context.Background(), pollTime)
	fetches := session.PollRecords(polling, recordsMax)
	stopPolling()
	for _, failed := range fetches.Errors() {
		if !errors.Is(failed.Err, context.DeadlineExceeded) {
			return fmt.Errorf("%s-%d: %w", failed.Topic, failed.Partition, failed.Err)
		}
	}
	if fetches.NumRecords() == 0 {
		return nil
	}
	if err := session.Begin(); err != nil {
		return err
	}
	produced := kgo.AbortingFirstErrPromise(session.Client())
	fetches.EachRecord(func(record *kgo.Record) {
		copied := &kgo.Record{Topic: o.target, Partition: record.Partition, Key: record.Key, Value: record.Value}
		session.Produce(context.Background(), copied, produced.Promise())
	})
	ending, stopEnding := context.WithTimeout(context.Background(), endTime)
	defer stopEnding()
	failure := produced.Err()
	committed, err := session.End(ending, kgo.TransactionEndTry(failure == nil))
	if err == nil && !committed {
		say(o, "aborts: the group rebalanced, or a record failed: %v", failure)
	}
	return err
}

// closeSession leaves the group, but does not wait for brokers that are away.
func closeSession(session *kgo.GroupTransactSession) {
	closed := make(chan struct{})
	go func() {
		session.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(closeTime):
	}
}
