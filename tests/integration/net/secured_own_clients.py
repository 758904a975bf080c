"""Kalda's own clients and tools over any way into a `SecuredBroker`; see `secured_clients`."""

from collections.abc import Sequence
from pathlib import Path

from click.testing import CliRunner

from kalda import Admin, Consumer, NewTopic, Producer
from kalda.cli import app
from kalda.clients.admin.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from kalda.clients.admin.configs import AlterConfigOp, ConfigResource
from kalda.clients.admin.quotas import QuotaAlteration, quota_entity
from kalda.clients.admin.users import ScramCredentialUpsertion, ScramMechanism
from tests.integration.net.secured_clients import (
    ACLS,
    BYTE_RATE,
    QUOTAS,
    RETENTION_MS,
    SECONDS,
    USERS,
    SecuredClient,
)
from tests.secured_broker import SCRAM, TOKEN


class OwnClient(SecuredClient):
    """Kalda's own producer, consumer and admin client."""

    name = "kalda"
    mechanisms = ("PLAIN", *SCRAM, "OAUTHBEARER", "GSSAPI", TOKEN)
    administers = frozenset({ACLS, USERS, QUOTAS})

    def _config(self) -> dict[str, str]:
        return self.broker.properties(self.way)

    def administer(self, topic: str) -> None:
        with Admin.from_config(self._config()) as admin:
            admin.create_topics([NewTopic(topic, 2, 1)])
            assert 2 == len(admin.describe_topics([topic])[topic].partitions)
            setting = AlterConfigOp.set("retention.ms", RETENTION_MS)
            admin.incremental_alter_configs({ConfigResource.topic(topic): [setting]})
            entry = AccessControlEntry(f"User:{topic}", "*", AclOperation.READ, PermissionType.ALLOW)
            admin.create_acls([AclBinding(ResourcePattern(ResourceType.TOPIC, topic), entry)])
            user = ScramCredentialUpsertion(topic, ScramMechanism.SCRAM_SHA_256, "secret")
            admin.alter_user_scram_credentials([user])
            quota = QuotaAlteration(quota_entity({"user": topic}), {"producer_byte_rate": BYTE_RATE})
            admin.alter_client_quotas([quota])

    def write(self, topic: str, values: Sequence[bytes]) -> None:
        with Producer.from_config({**self._config(), "enable.idempotence": "true"}) as producer:
            for value in values:
                producer.send(topic, value=value, partition=0)
            producer.flush(timeout_s=SECONDS)

    def read(self, topic: str, count: int) -> list[bytes]:
        config = {**self._config(), "group.id": topic, "auto.offset.reset": "earliest"}
        found: list[bytes] = []
        with Consumer.from_config(config) as consumer:
            consumer.subscribe([topic])
            while len(found) < count:
                records = consumer.poll(timeout_s=SECONDS)
                assert records, f"only {len(found)} of {count} came"
                found += [record.value or b"" for record in records]
            consumer.commit()
        return found

    def describe_group(self, topic: str) -> None:
        with Admin.from_config(self._config()) as admin:
            assert topic == admin.describe_consumer_groups([topic])[topic].group_id


class ToolsClient(SecuredClient):
    """The `kalda` commands, in this process: to start one for each takes ten times as long."""

    name = "kalda tools"
    mechanisms = OwnClient.mechanisms
    administers = OwnClient.administers

    def _run(self, *arguments: str | Path, stdin: str | None = None) -> str:
        config = self.broker.write_properties(self.way)
        words = [*map(str, arguments), "--command-config", str(config)]
        done = CliRunner().invoke(app, words, input=stdin, catch_exceptions=False)
        assert 0 == done.exit_code, done.output
        return done.stdout

    def administer(self, topic: str) -> None:
        self._run("topics", "create", topic, "--partitions", "2")
        self._run("configs", "alter", "--topic", topic, "--add-config", f"retention.ms={RETENTION_MS}")
        self._run(
            "acls", "add", "--topic", topic, "--allow-principal", f"User:{topic}", "--operation", "Read"
        )
        self._run("users", "set", topic, "--mechanism", "scram-sha-256", stdin="secret\n")
        self._run("quotas", "set", "--user", topic, "--producer-byte-rate", str(BYTE_RATE))

    def write(self, topic: str, values: Sequence[bytes]) -> None:
        lines = "".join(f"{each.decode()}\n" for each in values)
        self._run("produce", topic, "--partition", "0", stdin=lines)

    def read(self, topic: str, count: int) -> list[bytes]:
        text = self._run("consume", topic, "--group", topic, "--from-beginning", "--max-messages", str(count))
        return [each.encode() for each in text.split()]

    def describe_group(self, topic: str) -> None:
        assert topic in self._run("groups", "describe", topic)
