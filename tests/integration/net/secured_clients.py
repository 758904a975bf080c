"""The clients that users have, each over any way into a `SecuredBroker`, for the same course of calls.

`administer` makes the topic with two partitions, sets `retention.ms`, and where the client has calls for it
allows `User:<topic>` to read the topic, makes a SCRAM user of that name and gives it a quota. `read` joins a
group of the topic's name, and `describe_group` looks at it.
"""

import asyncio
import json
import shutil
import ssl
import subprocess
import time
from collections.abc import Coroutine, Sequence
from typing import Any, ClassVar, TypeVar

import aiokafka
import aiokafka.admin
import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.admin
from aiokafka.abc import AbstractTokenProvider
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaTokenProvider

from kalda import Admin, NewTopic
from tests.identity_provider import CLIENT_SECRET
from tests.secured_broker import SCRAM, SecuredBroker, Way

RETENTION_MS = "7000000"
BYTE_RATE = 5_000_000
SECONDS = 30.0
T = TypeVar("T")

ACLS, USERS, QUOTAS = "ACLs", "SCRAM users", "quotas"


class SecuredClient:
    """A client that logs in by one way; the base of all."""

    name: ClassVar[str]
    mechanisms: ClassVar[tuple[str, ...]] = ("PLAIN", *SCRAM, "OAUTHBEARER", "GSSAPI")
    administers: ClassVar[frozenset[str]] = frozenset()
    """What it has calls for, beside topics, settings and groups."""

    def __init__(self, broker: SecuredBroker, way: Way) -> None:
        self.broker = broker
        self.way = way

    def administer(self, topic: str) -> None:
        raise NotImplementedError

    def write(self, topic: str, values: Sequence[bytes]) -> None:
        """Produce to partition 0."""
        raise NotImplementedError

    def read(self, topic: str, count: int) -> list[bytes]:
        """Read as the one member of a group, and commit."""
        raise NotImplementedError

    def describe_group(self, topic: str) -> None:
        """Check that the group is there, by the client's own call."""

    @property
    def has_certificate(self) -> bool:
        return self.way.listener == "MTLS"


class ConfluentClient(SecuredClient):
    """librdkafka. Its wheel has no GSSAPI; the token of its producers and consumers comes from a callback."""

    name = "confluent-kafka"
    mechanisms = ("PLAIN", *SCRAM, "OAUTHBEARER")
    administers = frozenset({ACLS, USERS})

    def _config(self, *, by_callback: bool = True) -> dict[str, Any]:
        broker, way = self.broker, self.way
        config: dict[str, Any] = {"bootstrap.servers": broker.address(way), "security.protocol": way.protocol}
        if way.has_tls:
            config["ssl.ca.location"] = str(broker.ca)
        if self.has_certificate:
            certificate = str(broker.certificate)
            config |= {"ssl.certificate.location": certificate, "ssl.key.location": certificate}
        if way.mechanism:
            config["sasl.mechanism"] = way.mechanism
        if way.mechanism == "OAUTHBEARER" and by_callback:
            config["oauth_cb"] = lambda _: (broker.provider.token(way.user), time.time() + 600)
        elif way.mechanism == "OAUTHBEARER":
            config |= {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": way.user,
                "sasl.oauthbearer.client.secret": CLIENT_SECRET,
                "sasl.oauthbearer.token.endpoint.url": f"{broker.provider.url}/token",
            }
        elif way.mechanism:
            config |= {"sasl.username": way.user, "sasl.password": broker.password(way)}
        return config

    def _admin(self) -> Any:
        return confluent_kafka.admin.AdminClient(self._config(by_callback=False))

    def administer(self, topic: str) -> None:
        admin = self._admin()
        new = confluent_kafka.admin
        admin.create_topics([new.NewTopic(topic, 2, 1)])[topic].result(SECONDS)
        assert 2 == len(admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions)
        setting = new.ConfigEntry(
            "retention.ms", RETENTION_MS, incremental_operation=new.AlterConfigOpType.SET
        )
        resource = new.ConfigResource(new.ResourceType.TOPIC, topic, incremental_configs=[setting])
        admin.incremental_alter_configs([resource])[resource].result(SECONDS)
        acl = new.AclBinding(
            new.ResourceType.TOPIC,
            topic,
            new.ResourcePatternType.LITERAL,
            f"User:{topic}",
            "*",
            new.AclOperation.READ,
            new.AclPermissionType.ALLOW,
        )
        admin.create_acls([acl])[acl].result(SECONDS)
        credential = new.ScramCredentialInfo(new.ScramMechanism.SCRAM_SHA_256, 4096)
        alteration = new.UserScramCredentialUpsertion(topic, credential, b"secret")
        admin.alter_user_scram_credentials([alteration])[topic].result(SECONDS)
        described = admin.describe_user_scram_credentials([topic])[topic].result(SECONDS)
        assert [4096] == [each.iterations for each in described.scram_credential_infos]

    def write(self, topic: str, values: Sequence[bytes]) -> None:
        producer = confluent_kafka.Producer({**self._config(), "enable.idempotence": True})
        for value in values:
            producer.produce(topic, value, partition=0)
        assert 0 == producer.flush(SECONDS)

    def read(self, topic: str, count: int) -> list[bytes]:
        config = {**self._config(), "group.id": topic, "auto.offset.reset": "earliest"}
        consumer = confluent_kafka.Consumer(config)
        consumer.subscribe([topic])
        found: list[bytes] = []
        while len(found) < count:
            message = consumer.poll(SECONDS)
            assert message is not None, f"only {len(found)} of {count} came"
            assert message.error() is None, message.error()
            found.append(message.value())
        consumer.commit(asynchronous=False)
        consumer.close()
        return found

    def describe_group(self, topic: str) -> None:
        admin = self._admin()
        described = admin.describe_consumer_groups([topic])[topic].result(SECONDS)
        assert topic == described.group_id


class KafkaPythonClient(SecuredClient):
    name = "kafka-python"
    administers = frozenset({ACLS, USERS})

    def _keywords(self) -> dict[str, Any]:
        broker, way = self.broker, self.way
        config: dict[str, Any] = {"bootstrap_servers": broker.address(way), "security_protocol": way.protocol}
        if way.has_tls:
            config["ssl_cafile"] = str(broker.ca)
        if self.has_certificate:
            config |= {"ssl_certfile": str(broker.certificate), "ssl_keyfile": str(broker.certificate)}
        if way.mechanism:
            config["sasl_mechanism"] = way.mechanism
        if way.mechanism == "OAUTHBEARER":

            class Tokens(KafkaTokenProvider):  # type: ignore[misc]  # untyped library
                def token(self) -> str:
                    return broker.provider.token(way.user)

            config["sasl_oauth_token_provider"] = Tokens()
        elif way.mechanism == "GSSAPI":
            config["sasl_kerberos_service_name"] = "kafka"
        elif way.mechanism:
            config |= {"sasl_plain_username": way.user, "sasl_plain_password": broker.password(way)}
        return config

    def administer(self, topic: str) -> None:
        new = kafka.admin
        with new.KafkaAdminClient(**self._keywords()) as admin:
            admin.create_topics([new.NewTopic(topic, 2, 1)])
            assert 2 == len(admin.describe_topics([topic])[0]["partitions"])
            admin.alter_configs([new.ConfigResource("TOPIC", topic, {"retention.ms": RETENTION_MS})])
            acl = new.ACL(
                f"User:{topic}",
                "*",
                new.ACLOperation.READ,
                new.ACLPermissionType.ALLOW,
                new.ResourcePattern(new.ResourceType.TOPIC, topic),
            )
            assert not admin.create_acls([acl])["failed"]
            user = new.UserScramCredentialUpsertion(topic, "SCRAM-SHA-256", "secret")
            assert {topic: None} == admin.alter_user_scram_credentials([user])
            assert topic in admin.describe_user_scram_credentials([topic])

    def write(self, topic: str, values: Sequence[bytes]) -> None:
        producer = kafka.KafkaProducer(**self._keywords())
        futures = [producer.send(topic, value, partition=0) for value in values]
        producer.flush(SECONDS)
        for future in futures:
            future.get(SECONDS)
        producer.close()

    def read(self, topic: str, count: int) -> list[bytes]:
        consumer = kafka.KafkaConsumer(
            topic, **self._keywords(), group_id=topic, auto_offset_reset="earliest"
        )
        found: list[bytes] = []
        while len(found) < count:
            batches = consumer.poll(timeout_ms=int(SECONDS * 1000))
            assert batches, f"only {len(found)} of {count} came"
            found += [record.value for records in batches.values() for record in records]
        consumer.commit()
        consumer.close()
        return found

    def describe_group(self, topic: str) -> None:
        with kafka.admin.KafkaAdminClient(**self._keywords()) as admin:
            assert admin.describe_groups([topic])[topic]["error"] is None


class AiokafkaClient(SecuredClient):
    name = "aiokafka"

    def _keywords(self) -> dict[str, Any]:
        broker, way = self.broker, self.way
        config: dict[str, Any] = {"bootstrap_servers": broker.address(way), "security_protocol": way.protocol}
        if way.has_tls:
            context = ssl.create_default_context(cafile=broker.ca)
            if self.has_certificate:
                context.load_cert_chain(broker.certificate)
            config["ssl_context"] = context
        if way.mechanism:
            config["sasl_mechanism"] = way.mechanism
        if way.mechanism == "OAUTHBEARER":

            class Tokens(AbstractTokenProvider):  # type: ignore[misc]  # untyped library
                async def token(self) -> str:
                    return broker.provider.token(way.user)

            config["sasl_oauth_token_provider"] = Tokens()
        elif way.mechanism and way.mechanism != "GSSAPI":
            config |= {"sasl_plain_username": way.user, "sasl_plain_password": broker.password(way)}
        return config

    @staticmethod
    def _run(work: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            return await asyncio.wait_for(work, SECONDS)

        return asyncio.run(bounded())

    def administer(self, topic: str) -> None:
        new = aiokafka.admin

        async def work() -> None:
            admin = new.AIOKafkaAdminClient(**self._keywords())
            await admin.start()
            try:
                await admin.create_topics([new.NewTopic(topic, 2, 1)])
                (described,) = await admin.describe_topics([topic])
                assert 2 == len(described["partitions"])
                kind = new.config_resource.ConfigResourceType.TOPIC
                resource = new.config_resource.ConfigResource(kind, topic, {"retention.ms": RETENTION_MS})
                await admin.alter_configs([resource])
            finally:
                await admin.close()

        self._run(work())

    def write(self, topic: str, values: Sequence[bytes]) -> None:
        async def work() -> None:
            producer = aiokafka.AIOKafkaProducer(**self._keywords(), enable_idempotence=True)
            async with producer:
                await asyncio.gather(*[await producer.send(topic, value, partition=0) for value in values])

        self._run(work())

    def read(self, topic: str, count: int) -> list[bytes]:
        async def work() -> list[bytes]:
            consumer = aiokafka.AIOKafkaConsumer(
                topic, **self._keywords(), group_id=topic, auto_offset_reset="earliest"
            )
            async with consumer:
                found = [(await consumer.getone()).value for _ in range(count)]
                await consumer.commit()
                return found

        return self._run(work())

    def describe_group(self, topic: str) -> None:
        async def work() -> None:
            admin = aiokafka.admin.AIOKafkaAdminClient(**self._keywords())
            await admin.start()
            try:
                offsets = await admin.list_consumer_group_offsets(topic)
                assert offsets
            finally:
                await admin.close()

        self._run(work())


class KcatClient(SecuredClient):
    """Debian's, which has GSSAPI by Cyrus SASL. It gets no OAUTHBEARER token that is signed.

    Brokers make its topics; of administration it has the list of topics.
    """

    name = "kcat"
    mechanisms = ("PLAIN", *SCRAM, "GSSAPI")

    def _run(self, *arguments: str, text: str = "") -> str:
        broker, way = self.broker, self.way
        options = {"security.protocol": way.protocol}
        if way.has_tls:
            options["ssl.ca.location"] = str(broker.ca)
        if self.has_certificate:
            certificate = str(broker.certificate)
            options |= {"ssl.certificate.location": certificate, "ssl.key.location": certificate}
        if way.mechanism:
            options["sasl.mechanism"] = way.mechanism
        if way.mechanism == "GSSAPI":
            options["sasl.kerberos.service.name"] = "kafka"
            # The tickets are there already.
            options["sasl.kerberos.kinit.cmd"] = "true"
        elif way.mechanism:
            options |= {"sasl.username": way.user, "sasl.password": broker.password(way)}
        program = shutil.which("kcat")
        assert program is not None
        settings = [each for name, value in options.items() for each in ("-X", f"{name}={value}")]
        done = subprocess.run(
            [program, "-b", broker.address(way), *settings, *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=SECONDS * 2,
            check=False,
        )
        assert 0 == done.returncode, done.stderr
        return done.stdout

    def administer(self, topic: str) -> None:
        config = {"retention.ms": RETENTION_MS}
        with Admin.from_config(self.broker.properties(self.way)) as admin:
            admin.create_topics([NewTopic(topic, 2, 1, config=config)])
        assert topic in {each["topic"] for each in json.loads(self._run("-L", "-J"))["topics"]}

    def write(self, topic: str, values: Sequence[bytes]) -> None:
        self._run("-P", "-t", topic, "-p", "0", text="\n".join(each.decode() for each in values))

    def read(self, topic: str, count: int) -> list[bytes]:
        by_position = self._run("-C", "-t", topic, "-p", "0", "-c", str(count), "-q")
        assert count == len(by_position.split())
        earliest = ("-X", "auto.offset.reset=earliest")
        return [
            each.encode() for each in self._run("-G", topic, *earliest, "-c", str(count), "-q", topic).split()
        ]


FOREIGN_CLIENTS: tuple[type[SecuredClient], ...] = (
    ConfluentClient,
    KafkaPythonClient,
    AiokafkaClient,
    KcatClient,
)
