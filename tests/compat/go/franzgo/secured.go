package main

import (
	"context"
	"fmt"

	"kalda.example/compat/internal/command"

	krb5client "github.com/jcmturner/gokrb5/v8/client"
	krb5config "github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/kerberos"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func mechanism(s command.Security) (sasl.Mechanism, error) {
	auth := scram.Auth{User: s.Username, Pass: s.Password, IsToken: s.IsDelegated}
	switch s.Mechanism {
	case "PLAIN":
		return plain.Auth{User: s.Username, Pass: s.Password}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return auth.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return auth.AsSha512Mechanism(), nil
	case "OAUTHBEARER":
		return oauth.Auth{Token: s.Token}.AsMechanism(), nil
	case "GSSAPI":
		table, err := keytab.Load(s.KeyTable)
		if err != nil {
			return nil, err
		}
		config, err := krb5config.Load(s.KerberosConfig)
		if err != nil {
			return nil, err
		}
		client := krb5client.NewWithKeytab(s.Username, s.Realm, table, config)
		return kerberos.Auth{Client: client, Service: "kafka"}.AsMechanism(), nil
	}
	return nil, fmt.Errorf("there is no mechanism %q", s.Mechanism)
}

func securedAdmin(c command.Command) (*kadm.Client, error) {
	options, err := secured(c)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	return kadm.NewClient(client), nil
}

// administer makes the topic with two partitions, sets its retention, lets the user of the topic's name read
// it, gives that user a password for SCRAM and a quota.
func administer(c command.Command) (any, error) {
	admin, err := securedAdmin(c)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	ctx := context.Background()
	if _, err := admin.CreateTopic(ctx, 2, 1, nil, c.Topic); err != nil {
		return nil, err
	}
	retention := command.RetentionMs
	settings := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &retention}}
	altered, err := admin.AlterTopicConfigs(ctx, settings, c.Topic)
	if err == nil {
		err = altered[0].Err
	}
	if err != nil {
		return nil, err
	}
	acls := kadm.NewACLs().Topics(c.Topic).Allow("User:" + c.Topic).AllowHosts("*").Operations(kadm.OpRead)
	created, err := admin.CreateACLs(ctx, acls.ResourcePatternType(kadm.ACLPatternLiteral))
	if err == nil {
		err = created[0].Err
	}
	if err != nil {
		return nil, err
	}
	user := kadm.UpsertSCRAM{User: c.Topic, Mechanism: kadm.ScramSha256, Iterations: 4096, Password: "secret"}
	users, err := admin.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{user})
	if err == nil {
		err = users.Error()
	}
	if err != nil {
		return nil, err
	}
	name := c.Topic
	quota := kadm.AlterClientQuotaEntry{
		Entity: kadm.ClientQuotaEntity{{Type: "user", Name: &name}},
		Ops:    []kadm.AlterClientQuotaOp{{Key: "producer_byte_rate", Value: command.ByteRate}},
	}
	quotas, err := admin.AlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{quota})
	if err == nil {
		err = quotas[0].Err
	}
	return map[string]any{}, err
}

// readGroup reads Count records as the one member of the group of the topic's name, and commits.
func readGroup(c command.Command) (any, error) {
	options, err := secured(c)
	if err != nil {
		return nil, err
	}
	options = append(options,
		kgo.ConsumerGroup(c.Topic),
		kgo.ConsumeTopics(c.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
	)
	client, err := kgo.NewClient(options...)
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
	return map[string]any{"values": values}, client.CommitUncommittedOffsets(context.Background())
}

func describeGroup(c command.Command) (any, error) {
	admin, err := securedAdmin(c)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	groups, err := admin.DescribeGroups(context.Background(), c.Topic)
	if err == nil {
		err = groups.Error()
	}
	return map[string]any{}, err
}
