package main

import (
	"context"

	"kalda.example/compat/internal/command"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// scramClient is what Sarama's documentation shows: Sarama has SCRAM's messages from another module.
type scramClient struct {
	*scram.ClientConversation
	hash scram.HashGeneratorFcn
}

func (s *scramClient) Begin(user, password, authorization string) error {
	client, err := s.hash.NewClient(user, password, authorization)
	if err != nil {
		return err
	}
	s.ClientConversation = client.NewConversation()
	return nil
}

type tokenProvider string

func (t tokenProvider) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(t)}, nil
}

func logIn(config *sarama.Config, s command.Security) {
	if s.Mechanism == "" {
		return
	}
	login := &config.Net.SASL
	login.Enable = true
	login.Mechanism = sarama.SASLMechanism(s.Mechanism)
	switch s.Mechanism {
	case sarama.SASLTypeOAuth:
		login.TokenProvider = tokenProvider(s.Token)
	case sarama.SASLTypeGSSAPI:
		login.GSSAPI = sarama.GSSAPIConfig{
			AuthType: sarama.KRB5_KEYTAB_AUTH, KeyTabPath: s.KeyTable, KerberosConfigPath: s.KerberosConfig,
			ServiceName: "kafka", Username: s.Username, Realm: s.Realm,
		}
	default:
		login.User, login.Password = s.Username, s.Password
		hash := scram.SHA256
		if s.Mechanism == sarama.SASLTypeSCRAMSHA512 {
			hash = scram.SHA512
		}
		login.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: hash} }
	}
}

// administer makes the topic with two partitions, sets its retention, lets the user of the topic's name read
// it, gives that user a password for SCRAM and a quota.
func administer(c command.Command) (any, error) {
	config, err := configuration(c)
	if err != nil {
		return nil, err
	}
	admin, err := sarama.NewClusterAdmin([]string{c.Bootstrap}, config)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	if err := admin.CreateTopic(c.Topic, &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1}, false); err != nil {
		return nil, err
	}
	retention := command.RetentionMs
	entries := map[string]sarama.IncrementalAlterConfigsEntry{
		"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &retention},
	}
	if err := admin.IncrementalAlterConfig(sarama.TopicResource, c.Topic, entries, false); err != nil {
		return nil, err
	}
	resource := sarama.Resource{
		ResourceType: sarama.AclResourceTopic, ResourceName: c.Topic, ResourcePatternType: sarama.AclPatternLiteral,
	}
	acl := sarama.Acl{
		Principal: "User:" + c.Topic, Host: "*", Operation: sarama.AclOperationRead, PermissionType: sarama.AclPermissionAllow,
	}
	if err := admin.CreateACL(resource, acl); err != nil {
		return nil, err
	}
	user := sarama.AlterUserScramCredentialsUpsert{
		Name: c.Topic, Mechanism: sarama.SCRAM_MECHANISM_SHA_256, Iterations: 4096,
		Salt: []byte("0123456789abcdef"), Password: []byte("secret"),
	}
	results, err := admin.UpsertUserScramCredentials([]sarama.AlterUserScramCredentialsUpsert{user})
	if err != nil {
		return nil, err
	}
	if results[0].ErrorCode != sarama.ErrNoError {
		return nil, results[0].ErrorCode
	}
	entity := []sarama.QuotaEntityComponent{
		{EntityType: sarama.QuotaEntityUser, MatchType: sarama.QuotaMatchExact, Name: c.Topic},
	}
	quota := sarama.ClientQuotasOp{Key: "producer_byte_rate", Value: command.ByteRate}
	return map[string]any{}, admin.AlterClientQuotas(entity, quota, false)
}

// member collects the records of a group's one member.
type member struct {
	count  int
	values [][]byte
	cancel context.CancelFunc
}

func (*member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim reads partition 0; the other one is empty.
func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	if claim.Partition() != 0 {
		<-session.Context().Done()
		return nil
	}
	for record := range claim.Messages() {
		m.values = append(m.values, record.Value)
		session.MarkMessage(record, "")
		if len(m.values) == m.count {
			session.Commit()
			m.cancel()
		}
	}
	return nil
}

// readGroup reads Count records as the one member of the group of the topic's name, and commits.
func readGroup(c command.Command) (any, error) {
	config, err := configuration(c)
	if err != nil {
		return nil, err
	}
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	group, err := sarama.NewConsumerGroup([]string{c.Bootstrap}, c.Topic, config)
	if err != nil {
		return nil, err
	}
	defer group.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	reader := &member{count: c.Count, cancel: cancel}
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{c.Topic}, reader); err != nil {
			return nil, err
		}
	}
	return map[string]any{"values": reader.values}, nil
}

func describeGroup(c command.Command) (any, error) {
	config, err := configuration(c)
	if err != nil {
		return nil, err
	}
	admin, err := sarama.NewClusterAdmin([]string{c.Bootstrap}, config)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	groups, err := admin.DescribeConsumerGroups([]string{c.Topic})
	if err != nil {
		return nil, err
	}
	if groups[0].Err != sarama.ErrNoError {
		return nil, groups[0].Err
	}
	return map[string]any{}, nil
}
