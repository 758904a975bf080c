// Serialises and deserialises with confluent-kafka-go's serializers, through Kafka, and prints what was read.
package main

import (
	"encoding/json"
	"log"
	"os"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry/rest"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry/serde"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry/serde/avrov2"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry/serde/jsonschema"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry/serde/protobuf"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

type order struct {
	ID   int64  `avro:"id" json:"id"`
	City string `avro:"city" json:"city"`
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

var (
	producer *kafka.Producer
	consumer *kafka.Consumer
)

// through sends bytes to a topic and returns the bytes that a consumer reads from it.
func through(topic string, value []byte) []byte {
	delivered := make(chan kafka.Event, 1)
	partition := kafka.TopicPartition{Topic: &topic, Partition: 0}
	must(0, producer.Produce(&kafka.Message{TopicPartition: partition, Value: value}, delivered))
	must(0, (<-delivered).(*kafka.Message).TopicPartition.Error)
	partition.Offset = kafka.OffsetBeginning
	must(0, consumer.Assign([]kafka.TopicPartition{partition}))
	return must(consumer.ReadMessage(time.Minute)).Value
}

func main() {
	producer = must(kafka.NewProducer(&kafka.ConfigMap{"bootstrap.servers": os.Args[1]}))
	consumer = must(kafka.NewConsumer(&kafka.ConfigMap{"bootstrap.servers": os.Args[1], "group.id": "go"}))
	registry := must(schemaregistry.NewClient(schemaregistry.NewConfig(os.Args[2])))
	sent := order{7, "Bílina"}
	seen := map[string]any{}

	avroOut := must(avrov2.NewSerializer(registry, serde.ValueSerde, avrov2.NewSerializerConfig()))
	avroIn := must(avrov2.NewDeserializer(registry, serde.ValueSerde, avrov2.NewDeserializerConfig()))
	var avro order
	must(0, avroIn.DeserializeInto("go-avro", through("go-avro", must(avroOut.Serialize("go-avro", &sent))), &avro))
	seen["avro"] = avro

	jsonOut := must(jsonschema.NewSerializer(registry, serde.ValueSerde, jsonschema.NewSerializerConfig()))
	jsonIn := must(jsonschema.NewDeserializer(registry, serde.ValueSerde, jsonschema.NewDeserializerConfig()))
	var text order
	must(0, jsonIn.DeserializeInto("go-json", through("go-json", must(jsonOut.Serialize("go-json", &sent))), &text))
	seen["json"] = text

	protoOut := must(protobuf.NewSerializer(registry, serde.ValueSerde, protobuf.NewSerializerConfig()))
	protoIn := must(protobuf.NewDeserializer(registry, serde.ValueSerde, protobuf.NewDeserializerConfig()))
	var proto wrapperspb.StringValue
	value := must(protoOut.Serialize("go-protobuf", wrapperspb.String("Bílina")))
	must(0, protoIn.DeserializeInto("go-protobuf", through("go-protobuf", value), &proto))
	seen["protobuf"] = proto.Value

	const id = `{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}`
	const stricter = `{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},{"name":"x","type":"int"}]}`
	must(registry.Register("go-rules-value", schemaregistry.SchemaInfo{Schema: id}, false))
	seen["compatible"] = must(registry.TestCompatibility("go-rules-value", 1, schemaregistry.SchemaInfo{Schema: stricter}))
	_, refused := registry.Register("go-rules-value", schemaregistry.SchemaInfo{Schema: stricter}, false)
	seen["refused"] = refused.(*rest.Error).Code
	seen["latest"] = must(registry.GetLatestSchemaMetadata("go-rules-value")).Version
	level := must(registry.GetDefaultCompatibility())
	seen["level"] = level.String()
	_, missing := registry.GetLatestSchemaMetadata("go-none")
	seen["missing"] = missing.(*rest.Error).Code
	seen["subjects"] = must(registry.GetAllSubjects())
	seen["deleted"] = must(registry.DeleteSubject("go-rules-value", false))
	must(0, json.NewEncoder(os.Stdout).Encode(seen))
}
