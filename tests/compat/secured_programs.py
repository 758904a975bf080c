"""Clients in other languages over any way into a `SecuredBroker`, for the course of `secured_course`."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from tests.compat.java_releases import JavaRelease
from tests.compat.programs import NODE, ProgramClient
from tests.integration.clients.clients import Message
from tests.integration.net.secured_clients import (
    ACLS,
    BYTE_RATE,
    QUOTAS,
    RETENTION_MS,
    USERS,
    SecuredClient,
)
from tests.secured_broker import SCRAM, TOKEN, SecuredBroker, Way


class SecuredProgram(SecuredClient):
    """A program that takes commands as JSON; the base of those in Go and in JavaScript."""

    settings: ClassVar[dict[str, str]] = {}

    def __init__(self, broker: SecuredBroker, way: Way, arguments: Sequence[str | Path]) -> None:
        super().__init__(broker, way)
        self.arguments = list(arguments)

    def program(self, **security: object) -> ProgramClient:
        """Return the program with the way's login, changed by what is given."""
        broker, way = self.broker, self.way
        given: dict[str, object] = {}
        if way.has_tls:
            given["ca"] = str(broker.ca)
        if self.has_certificate:
            given["certificate"] = str(broker.certificate)
        if way.mechanism == "OAUTHBEARER":
            given |= {"token": broker.provider.token(way.user)}
        elif way.mechanism == "GSSAPI":
            given |= {"username": way.user, **broker.kerberos_login(way)}
        elif way.mechanism:
            given |= {"username": broker.name(way), "password": broker.password(way)}
        if way.mechanism:
            given |= {"mechanism": broker.mechanism(way), "is_delegated": way.mechanism == TOKEN}
        settings: dict[str, Any] = {**self.settings, "security": {**given, **security}}
        return ProgramClient(self.name, self.arguments, broker.address(way), settings)

    def administer(self, topic: str) -> None:
        self.program().run("administer", topic=topic)

    def write(self, topic: str, values: Sequence[bytes]) -> None:
        self.program().produce(topic, [Message(None, value, (), 1_700_000_000_000) for value in values])

    def read(self, topic: str, count: int) -> list[bytes]:
        values = self.program().run("read_group", topic=topic, count=count)["values"]
        return [base64.b64decode(value) for value in values]

    def describe_group(self, topic: str) -> None:
        self.program().run("describe_group", topic=topic)


class FranzGo(SecuredProgram):
    name = "franz-go"
    mechanisms = ("PLAIN", *SCRAM, "OAUTHBEARER", "GSSAPI", TOKEN)
    administers = frozenset({ACLS, USERS, QUOTAS})


class Sarama(SecuredProgram):
    """It has the messages of SCRAM from another module, which knows no delegation tokens."""

    name = "sarama"
    administers = frozenset({ACLS, USERS, QUOTAS})
    settings: ClassVar[dict[str, str]] = {"version": "2.8.0"}


class KafkaJs(SecuredProgram):
    name = "kafkajs"
    mechanisms = ("PLAIN", *SCRAM, "OAUTHBEARER")
    administers = frozenset({ACLS})


PROGRAMS: tuple[type[SecuredProgram], ...] = (FranzGo, Sarama, KafkaJs)


def program_arguments(name: str, go_programs: Path | None, node_modules: Path | None) -> list[str | Path]:
    """Return the command that runs the client of a name."""
    if name == KafkaJs.name:
        return ["env", f"NODE_PATH={node_modules}", "node", NODE / "kafkajs.js"]
    assert go_programs is not None
    return [go_programs / {"franz-go": "franzgo"}.get(name, name)]


class JavaTools(SecuredClient):
    """Kafka's command-line tools, of one release."""

    name = "Java"
    mechanisms = ("PLAIN", *SCRAM, "OAUTHBEARER", "GSSAPI", TOKEN)
    administers = frozenset({ACLS, USERS, QUOTAS})

    def __init__(self, broker: SecuredBroker, way: Way, release: JavaRelease) -> None:
        super().__init__(broker, way)
        self._release = release
        self._server = ("--bootstrap-server", broker.address(way))
        self._file = str(broker.write_properties(way))

    def _run(self, tool: str, *arguments: str) -> str:
        return self._release.run(tool, *self._server, "--command-config", self._file, *arguments)

    def _configure(self, kind: str, topic: str, setting: str) -> None:
        entity = ("--entity-type", kind, "--entity-name", topic)
        self._run(self._release.config_command, "--alter", *entity, "--add-config", setting)

    def administer(self, topic: str) -> None:
        is_moved = self._release.number >= (4,)
        acls = "org.apache.kafka.tools.AclCommand" if is_moved else "kafka.admin.AclCommand"
        new = ("--create", "--topic", topic, "--partitions", "2", "--replication-factor", "1")
        self._run("org.apache.kafka.tools.TopicCommand", *new)
        self._configure("topics", topic, f"retention.ms={RETENTION_MS}")
        allowed = ("--allow-principal", f"User:{topic}", "--operation", "Read", "--topic", topic)
        self._run(acls, "--add", *allowed)
        self._configure("users", topic, "SCRAM-SHA-256=[iterations=4096,password=secret]")
        self._configure("users", topic, f"producer_byte_rate={BYTE_RATE}")

    def write(self, topic: str, values: Sequence[bytes]) -> None:
        package = "org.apache.kafka.tools" if self._release.number >= (4,) else "kafka.tools"
        # The tool takes no partition; the key's hash is partition 0 of two.
        lines = "".join(f"0\t{value.decode()}\n" for value in values)
        self._release.run(
            f"{package}.ConsoleProducer",
            *(*self._server, "--topic", topic, self._release.config_option("producer"), self._file),
            *("--property", "parse.key=true"),
            text=lines,
        )

    def read(self, topic: str, count: int) -> list[bytes]:
        text = self._release.run(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *(*self._server, "--topic", topic, "--group", topic),
            *(self._release.config_option("consumer"), self._file),
            *("--from-beginning", "--max-messages", str(count), "--timeout-ms", "60000"),
        )
        return [line.encode() for line in text.split()]

    def describe_group(self, topic: str) -> None:
        text = self._run(
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--describe", "--group", topic
        )
        assert topic in text
