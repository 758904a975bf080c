"""What an authorizer costs: small produce requests to a broker with ACLs and to one without, in turns.

The broker with ACLs has 1,000 of them on other topics, and one that allows the client to write to the topics
of a prefix. Rounds of half a second alternate between the brokers, so that other work on the machine disturbs
both. Besides the rates there is each broker's processor time for a request, which is disturbed less.
"""

import statistics
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.end_to_end import Figure, create_topic
from benchmarks.request_rate import Connections, processor_seconds, produce_frame
from kalda import Admin
from kalda.clients.admin.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from kalda.testing import KaldaProcess

_ROUNDS: Final = 40
_ROUND_SECONDS: Final = 0.5
_ACLS: Final = 1_000
_TOPIC: Final = "requests"
_AUTHORIZER: Final = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@dataclass
class _Side:
    """One broker under load, and what was measured in each round."""

    connections: Connections
    pid: int
    rates: list[float] = field(default_factory=list)
    microseconds: list[float] = field(default_factory=list)

    def one_round(self, seconds: float = _ROUND_SECONDS) -> None:
        before = processor_seconds(self.pid)
        done, took = self.connections.drive(seconds)
        used = processor_seconds(self.pid) - before
        self.rates.append(done / took)
        self.microseconds.append(used / done * 1e6)


def run() -> list[Figure]:
    """Measure over 1, 20 and 200 connections."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="kalda-bench-") as directory:
        root = Path(directory)
        with (
            KaldaProcess(root / "plain") as plain,
            KaldaProcess(root / "acls", settings=_AUTHORIZER) as restricted,
        ):
            for broker in (plain, restricted):
                create_topic(broker.bootstrap, _TOPIC)
            _create_acls(restricted.bootstrap)
            for count in (1, 20, 200):
                figures += _compare(plain, restricted, count)
    return figures


def _compare(plain: KaldaProcess, restricted: KaldaProcess, count: int) -> list[Figure]:
    frame = produce_frame(_TOPIC)
    with ExitStack() as stack:
        sides = []
        for broker in (plain, restricted):
            host, _, port = broker.bootstrap.rpartition(":")
            connections = stack.enter_context(Connections(host, int(port), frame, count))
            connections.drive(1.0)
            sides.append(_Side(connections, broker.pid))
        for number in range(_ROUNDS):
            for side in sides if number % 2 else reversed(sides):
                side.one_round()
    without, with_acls = sides
    label = f"{count} connections"
    return [
        (f"requests with ACLs, {label}", statistics.median(with_acls.rates) / 1000, "k/s"),
        (
            f"requests with ACLs, {label}, beside none",
            statistics.median(with_acls.rates) / statistics.median(without.rates),
            "x",
        ),
        (
            f"processor time of a request with ACLs, {label}, beside none",
            statistics.median(with_acls.microseconds) / statistics.median(without.microseconds),
            "x",
        ),
    ]


def _create_acls(bootstrap: str) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        bindings = [_allow(f"orders-{number}", PatternType.LITERAL, "User:alice") for number in range(_ACLS)]
        bindings.append(_allow(_TOPIC[:3], PatternType.PREFIXED, "User:ANONYMOUS"))
        dict(admin.create_acls(bindings))


def _allow(name: str, kind: PatternType, principal: str) -> AclBinding:
    return AclBinding(
        ResourcePattern(ResourceType.TOPIC, name, kind),
        AccessControlEntry(principal, "*", AclOperation.WRITE, PermissionType.ALLOW),
    )
