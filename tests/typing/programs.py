"""Programs as users write them, for type checkers: `RIGHT` ones are clean, each of the `WRONG` has an error.

Only `test_programs` reads them; nothing here runs.
"""

from typing import Final

RIGHT: Final = {
    "produce": """
        with kalda.Producer(bootstrap_servers="localhost:9092", linger_ms=5, acks="all") as producer:
            metadata = producer.send("flights", b"AA 100", key=b"JFK").result(10)
            offset: int = metadata.offset
        """,
    "produce_secured": """
        producer = kalda.Producer(
            bootstrap_servers=["a:9093", "b:9093"],
            security_protocol="SASL_SSL",
            ssl_ca_location="ca.pem",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_username="alice",
            sasl_password="secret",
        )
        producer.close()
        """,
    "produce_mutual_tls": """
        with kalda.Producer(
            bootstrap_servers="a:9093",
            security_protocol="SSL",
            ssl_keystore_type="PEM",
            ssl_keystore_location="client.pem",
            ssl_key_password=None,
            ssl_truststore_type="PEM",
            ssl_truststore_location="ca.pem",
        ) as producer:
            producer.flush()
        """,
    "produce_with_callback": """
        def delivered(metadata: kalda.RecordMetadata | None, error: Exception | None) -> None:
            if metadata is not None:
                print(metadata.topic, metadata.offset)

        def send(producer: kalda.Producer) -> None:
            producer.send("flights", b"x", on_delivery=delivered)
        """,
    "produce_from_file": """
        with kalda.Producer.from_config("client.properties", client_id="p") as producer:
            producer.send("flights", value=b"x", headers=[("id", b"1")], partition=0)
        """,
    "transaction": """
        with kalda.Producer(bootstrap_servers="a:1", transactional_id="t") as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send("flights", b"x")
        """,
    "async_produce": """
        async def main() -> int:
            async with kalda.AsyncProducer(bootstrap_servers="a:1", compression_type="zstd") as producer:
                metadata = await (await producer.send("flights", b"x"))
                return metadata.offset
        """,
    "consume": """
        with kalda.Consumer("flights", bootstrap_servers="a:1", group_id="readers") as consumer:
            for record in consumer:
                topic: str = record.topic
                offset: int = record.offset
                print(topic, offset, record.timestamp_ms)
        """,
    "consume_secured": """
        with kalda.Consumer(
            "flights",
            bootstrap_servers="a:9093",
            group_id="readers",
            security_protocol="SASL_SSL",
            sasl_mechanism="PLAIN",
            sasl_username="alice",
            sasl_password="secret",
        ) as consumer:
            records = consumer.poll(1.0, max_records=10)
            print(len(records))
        """,
    "consume_partition": """
        partition = kalda.TopicPartition("flights", 0)
        with kalda.Consumer(bootstrap_servers="a:1", auto_offset_reset="earliest") as consumer:
            consumer.assign([partition])
            consumer.seek(partition, 5)
            ends: dict[kalda.TopicPartition, int] = consumer.end_offsets([partition])
            print(ends[partition])
        """,
    "consume_with_listener": """
        class Listener(kalda.ConsumerRebalanceListener):
            pass

        with kalda.Consumer("t", bootstrap_servers="a:1", group_id="g", listener=Listener()) as consumer:
            consumer.commit()
        """,
    "async_consume": """
        async def main() -> None:
            async with kalda.AsyncConsumer("flights", bootstrap_servers="a:1", group_id="g") as consumer:
                async for record in consumer:
                    print(record.offset)
        """,
    "share": """
        with kalda.ShareConsumer(
            "jobs", bootstrap_servers="a:1", group_id="workers", share_acknowledgement_mode="explicit"
        ) as consumer:
            for record in consumer.poll(1.0):
                again = record.delivery_count < 3
                kinds = kalda.AcknowledgeType
                consumer.acknowledge(record, kinds.RELEASE if again else kinds.REJECT)
            for partition, error in consumer.commit().items():
                print(partition.topic, error)
        """,
    "async_share": """
        async def main() -> None:
            async with kalda.AsyncShareConsumer("jobs", bootstrap_servers="a:1", group_id="g") as consumer:
                async for record in consumer:
                    print(record.offset)
        """,
    "deserializer": """
        def decode(topic: str, data: bytes | None) -> str | None:
            return None if data is None else data.decode()

        def length(record: kalda.ConsumerRecord[bytes, str]) -> int:
            return len(record.value)
        """,
    "admin": """
        with kalda.Admin(bootstrap_servers="a:1") as admin:
            created = admin.create_topics([kalda.NewTopic("flights", partitions=3, replication_factor=1)])
            print(created["flights"].topic_id)
            outcomes = admin.delete_topics(["flights"], outcomes=True)
            for name, error in outcomes.errors.items():
                print(str(name).upper(), error.is_retriable)
            try:
                admin.create_partitions({"flights": 6})
            except kalda.ClientError as error:
                print(list(error.succeeded), [failure.code for failure in error.failed.values()])
        """,
    "admin_secured": """
        admin = kalda.Admin(
            bootstrap_servers="a:1",
            security_protocol="SASL_SSL",
            sasl_jaas_config='PlainLoginModule required username="a" password="b";',
            bootstrap_wait_ms=0,
        )
        admin.close()
        """,
    "acls": """
        pattern = kalda.ResourcePattern(kalda.ResourceType.TOPIC, "flights", kalda.PatternType.LITERAL)
        print(pattern)
        """,
    "async_admin": """
        async def main() -> list[str]:
            async with kalda.AsyncAdmin(bootstrap_servers="a:1", request_timeout_ms=5000) as admin:
                return list(await admin.list_topics())
        """,
    "errors": """
        def send(producer: kalda.Producer) -> None:
            try:
                producer.send("flights", b"x").result(1)
            except (kalda.TlsError, kalda.BootstrapError) as error:
                print(error.is_retriable)
            except kalda.BrokerResponseError as error:
                print(error.code.name)
        """,
    "options": """
        options: kalda.ProducerOptions = {"bootstrap_servers": "a:1", "linger_ms": 5}
        with kalda.Producer(**options) as producer:
            print(repr(producer))
        """,
    "consume_orders": """
        from dataclasses import dataclass

        @dataclass
        class Order:
            price: float

        orders = kalda.serializers.json(Order)
        with kalda.Consumer("orders", bootstrap_servers="a:1", value_deserializer=orders) as consumer:
            total = sum(record.value.price for record in consumer.poll())
            print(total + 1.5)
        """,
    "produce_orders": """
        from dataclasses import dataclass

        @dataclass
        class Order:
            price: float

        with kalda.Producer(
            bootstrap_servers="a:1",
            key_serializer=kalda.serializers.integer(bytes=8),
            value_serializer=kalda.serializers.json(Order),
        ) as producer:
            producer.send("orders", Order(1.5), key=7)
            producer.send("orders", None, key=7)
        """,
    "declared_types": """
        import json

        producer: kalda.Producer[bytes | None, dict[str, int]] = kalda.Producer(
            bootstrap_servers="a:1", value_serializer=lambda value: json.dumps(value).encode()
        )
        producer.send("counts", {"a": 1})
        """,
    "any_json": """
        with kalda.Consumer(
            "t", bootstrap_servers="a:1", value_deserializer=kalda.serializers.json()
        ) as consumer:
            for record in consumer:
                print(record.value["price"], record.key)
        """,
    "own_serializer": """
        from collections.abc import Sequence

        class Numbers:
            def serialize(
                self, topic: str, headers: Sequence[tuple[str, bytes | None]], data: int | None
            ) -> bytes | None:
                return None if data is None else str(data).encode()

            def deserialize(
                self, topic: str, data: bytes, headers: Sequence[tuple[str, bytes | None]]
            ) -> int:
                return int(data)

        kalda.Producer(bootstrap_servers="a:1", value_serializer=Numbers()).send("t", 5)
        value: int = kalda.Consumer("t", value_deserializer=Numbers()).poll()[0].value
        """,
    "closed_sets": """
        from datetime import timedelta

        kalda.Consumer(
            "t",
            bootstrap_servers="a:1",
            group_protocol="consumer",
            group_id="g",
            auto_offset_reset=timedelta(hours=1),
            isolation_level=kalda.IsolationLevel.READ_COMMITTED,
        ).close()
        kalda.Producer(bootstrap_servers="a:1", acks=1, compression_type="lz4").close()
        """,
    "cluster": """
        with kalda.Cluster(brokers=3) as cluster:
            with kalda.Producer(bootstrap_servers=cluster.bootstrap) as producer:
                producer.send("t", b"x")
        """,
}
"""Clean in the strict modes."""

WRONG: Final = {
    "unknown_setting": 'kalda.Producer(bootstrap_servers="a:1", lingerms=5)',
    "foreign_setting": 'kalda.Producer(bootstrap_servers="a:1", ssl_cafile="ca.pem")',
    "foreign_login": 'kalda.Consumer("t", bootstrap_servers="a:1", sasl_plain_username="a")',
    "setting_of_another_client": 'kalda.Consumer("t", bootstrap_servers="a:1", linger_ms=5)',
    "servers_as_position": 'kalda.Producer("a:1")',
    "servers_as_number": "kalda.Producer(bootstrap_servers=9092)",
    "password_as_bytes": 'kalda.Producer(bootstrap_servers="a:1", sasl_password=b"secret")',
    "store_as_bytes": 'kalda.Admin(bootstrap_servers="a:1", ssl_ca_location=b"ca.pem")',
    "time_as_list": 'kalda.Admin(bootstrap_servers="a:1", request_timeout_ms=[1])',
    "topic_as_number": 'kalda.Producer(bootstrap_servers="a:1").send(5, b"x")',
    "partition_as_text": 'kalda.Producer(bootstrap_servers="a:1").send("t", b"x", partition="0")',
    "unknown_argument": 'kalda.Producer(bootstrap_servers="a:1").send("t", b"x", timestamp=5)',
    "future_get": 'kalda.Producer(bootstrap_servers="a:1").send("t", b"x").get(5)',
    "offset_as_text": 'kalda.TopicPartition("t", "0")',
    "assign_a_name": 'kalda.Consumer(bootstrap_servers="a:1").assign(["t"])',
    "record_timestamp": """
        def time_of(record: kalda.ConsumerRecord[bytes, bytes]) -> int:
            return record.timestamp
        """,
    "await_forgotten": """
        async def main(producer: kalda.AsyncProducer) -> int:
            return (await producer.send("t", b"x")).offset
        """,
    "sync_with": """
        def main(producer: kalda.AsyncProducer) -> None:
            with producer:
                pass
        """,
    "topic_without_class": 'kalda.Admin(bootstrap_servers="a:1").create_topics(["flights"])',
    "text_without_serializer": 'kalda.Producer(bootstrap_servers="a:1").send("t", "text")',
    "key_of_another_type": """
        producer = kalda.Producer(bootstrap_servers="a:1", key_serializer=kalda.serializers.string())
        producer.send("t", b"x", key=5)
        """,
    "value_of_another_type": """
        numbers = kalda.serializers.integer()
        kalda.Producer(bootstrap_servers="a:1", value_serializer=numbers).send("t", "5")
        """,
    "missing_value": """
        for record in kalda.Consumer("t", bootstrap_servers="a:1"):
            record.value.decode()
        """,
    "field_of_a_record": """
        orders = kalda.serializers.json(kalda.TopicPartition)
        for record in kalda.Consumer("t", bootstrap_servers="a:1", value_deserializer=orders):
            print(record.value.price)
        """,
    "serializer_for_a_consumer": """
        kalda.Consumer("t", bootstrap_servers="a:1", value_deserializer=5)
        """,
    "integers_of_two_bytes": "kalda.serializers.integer(bytes=2)",
    "unknown_acks": 'kalda.Producer(bootstrap_servers="a:1", acks="most")',
    "unknown_codec": 'kalda.Producer(bootstrap_servers="a:1", compression_type="gz")',
    "unknown_reset": 'kalda.Consumer("t", bootstrap_servers="a:1", auto_offset_reset="smallest")',
    "unknown_isolation": 'kalda.Consumer("t", bootstrap_servers="a:1", isolation_level="committed")',
    "unknown_group_protocol": 'kalda.Consumer("t", bootstrap_servers="a:1", group_protocol="new")',
    "share_acknowledgement": 'kalda.ShareConsumer("t", group_id="g", acknowledgement="explicit")',
    "share_acknowledgement_mode": 'kalda.ShareConsumer("t", group_id="g", share_acknowledgement_mode="auto")',
    "seek_in_a_queue": 'kalda.ShareConsumer("t", bootstrap_servers="a:1", group_id="g").seek(0)',
    "unknown_security": 'kalda.Admin(bootstrap_servers="a:1", security_protocol="TLS")',
    "unknown_mechanism": 'kalda.Admin(bootstrap_servers="a:1", sasl_mechanism="SCRAM")',
    "brokers_as_text": 'kalda.Cluster(brokers="3")',
}
"""Each has an error in either checker."""
