"""What an authorizer costs: small produce requests to a broker with ACLs and to two without, in turns.

The broker with ACLs has 1,000 of them on other topics, and one that allows the client to write to the topics
of a prefix. Rounds of half a second alternate between the brokers, so that other work on the machine disturbs
all. Besides the rates there is each broker's processor time for a request, which is disturbed less. Two
processes of the same broker differ by some percent; what the second without an authorizer gets beside the
first tells how much a figure of the broker with ACLs means.
"""

import statistics
import tempfile
from collections.abc import Sequence
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
            KaldaProcess(root / "again") as again,
        ):
            brokers = (plain, restricted, again)
            for broker in brokers:
                create_topic(broker.bootstrap, _TOPIC)
            _create_acls(restricted.bootstrap)
            for count in (1, 20, 200):
                figures += _compare(brokers, count)
    return figures


def _compare(brokers: Sequence[KaldaProcess], count: int) -> list[Figure]:
    """Compare a broker without an authorizer, one with, and another without."""
    frame = produce_frame(_TOPIC)
    with ExitStack() as stack:
        sides = []
        for broker in brokers:
            host, _, port = broker.bootstrap.rpartition(":")
            connections = stack.enter_context(Connections(host, int(port), frame, count))
            connections.drive(1.0)
            sides.append(_Side(connections, broker.pid))
        for number in range(_ROUNDS):
            first = number % len(sides)
            for side in (*sides[first:], *sides[:first]):
                side.one_round()
    plain, restricted, again = sides
    without = _median(plain.rates, again.rates)
    without_us = _median(plain.microseconds, again.microseconds)
    label = f"{count} connections"
    return [
        (f"requests with ACLs, {label}", _median(restricted.rates) / 1000, "k/s"),
        (f"requests with ACLs, {label}, beside none", _median(restricted.rates) / without, "x"),
        (
            f"requests of the second broker without, {label}, beside the first",
            _median(again.rates) / _median(plain.rates),
            "x",
        ),
        (
            f"processor time of a request with ACLs, {label}, beside none",
            _median(restricted.microseconds) / without_us,
            "x",
        ),
        (
            f"processor time of a request of the second broker without, {label}, beside the first",
            _median(again.microseconds) / _median(plain.microseconds),
            "x",
        ),
    ]


def _median(*rounds: list[float]) -> float:
    """Return the mean of the brokers' medians."""
    return statistics.mean(map(statistics.median, rounds))


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
