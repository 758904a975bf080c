"""Our decisions beside those of Apache Kafka's own AclAuthorizer, which reads the ACLs that we wrote."""

import asyncio
import os
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.apache_kafka import NotAvailableError
from kalda.broker.security.authorizer import Authorizer
from kalda.cluster.acl_store import AclStore
from kalda.net.connection import Connection
from kalda.security.acl import znodes
from kalda.security.acl.model import (
    CLUSTER_NAME,
    RESOURCE_OPERATIONS,
    AccessControlEntry,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from kalda.security.principal import USER, KafkaPrincipal
from kalda.testing import ZooKeeperProcess
from kalda.zookeeper.client.ensemble_client import EnsembleClient
from tests.compat.java_releases import JavaRelease
from tests.runtimes import seeded

PROGRAM = Path(__file__).parent / "java" / "Authorize.java"
SETS = int(os.environ.get("KALDA_ACL_SETS", "10000"))
"""ACL sets for both defaults of ``allow.everyone.if.no.acl.found`` together."""
STORED_EVERY = 250
"""One set in so many goes through ZooKeeper; each costs Apache Kafka a session of its own."""
QUESTIONS = 20
SUPER_USERS = ("root", "admin")
USERS = ("alice", "bob", "carol", *SUPER_USERS)
PRINCIPALS = ("User:alice", "User:bob", "User:*", "User:root", "Group:alice", "Group:*")
HOSTS = ("127.0.0.1", "10.0.0.9", "::1", "2001:db8::9", "::ffff:10.0.0.9")
ENTRY_HOSTS = ("*", "*", "127.0.0.1", "10.0.0.9", "0:0:0:0:0:0:0:1", "2001:db8:0:0:0:0:0:9", "::1")
"""AclAuthorizer compares texts, and Java spells IPv6 addresses out: an entry with `::1` never applies."""
KINDS = tuple(RESOURCE_OPERATIONS)

Bindings = dict[ResourcePattern, set[AccessControlEntry]]


def random_name(random: Random, kind: ResourceType) -> str:
    if kind is ResourceType.CLUSTER and random.random() < 0.8:
        return CLUSTER_NAME
    name = "".join(random.choice("ab") for _ in range(random.randrange(1, 4)))
    return f"User:{name}" if kind is ResourceType.USER and random.random() < 0.5 else name


def random_operation(random: Random, kind: ResourceType) -> AclOperation:
    # Kafka's authorizer for ZooKeeper ended before TWO_PHASE_COMMIT came.
    return random.choice(sorted(RESOURCE_OPERATIONS[kind] - {AclOperation.TWO_PHASE_COMMIT}))


def random_bindings(random: Random) -> Bindings:
    found: Bindings = {}
    # A set is about few kinds, so that its entries meet; over all sets every kind meets every other.
    kinds = random.sample(KINDS, random.randrange(1, 4))
    for _ in range(random.choice((0, 1, 2, 4, 8, 16, 32))):
        kind = random.choice(kinds)
        pattern_type = random.choice((PatternType.LITERAL, PatternType.PREFIXED))
        name = "*" if random.random() < 0.15 else random_name(random, kind)
        entry = AccessControlEntry(
            random.choice(PRINCIPALS),
            random.choice(ENTRY_HOSTS),
            AclOperation.ALL if random.random() < 0.2 else random_operation(random, kind),
            random.choice((PermissionType.ALLOW, PermissionType.ALLOW, PermissionType.DENY)),
        )
        found.setdefault(ResourcePattern(kind, name, pattern_type), set()).add(entry)
    return found


async def write(hosts: str, chroot: str, bindings: Bindings) -> None:
    client = await EnsembleClient.connect(
        hosts + chroot, session_timeout_ms=10_000, connection_timeout_ms=10_000
    )
    store = AclStore(client, seeded())
    await store.start(lambda pattern, entries: None)
    for pattern, entries in bindings.items():
        await store.change(pattern, lambda _, entries=entries: entries)  # type: ignore[misc]
    await store.close()
    await client.close()


class Ours:
    """The broker's authorizer, with one connection for each user and host, so that its cache takes part."""

    def __init__(self, by_default: bool) -> None:
        config = SimpleNamespace(
            super_users=";".join(f"User:{user}" for user in SUPER_USERS),
            allow_everyone_if_no_acl_found=by_default,
        )
        self._authorizer = Authorizer(cast(Any, config), cast(Any, self))
        self._bindings: Bindings = {}
        self._connections = {
            (user, host): SimpleNamespace(
                principal=KafkaPrincipal(USER, user), peer_address=host, decisions=None
            )
            for user in USERS
            for host in HOSTS
        }
        asyncio.run(self._authorizer.start())

    async def start(self, on_entries: Any) -> None:
        """Stand for the store: keep the callback that hears of changes."""
        self._on_entries = on_entries

    def replace(self, bindings: Bindings) -> None:
        for pattern in self._bindings:
            self._on_entries(pattern, frozenset())
        self._bindings = bindings
        for pattern, entries in bindings.items():
            self._on_entries(pattern, frozenset(entries))

    def answer(self, random: Random) -> tuple[str, str]:
        """Return a random question and our answer."""
        kinds = [pattern.resource_type for pattern in self._bindings] or KINDS
        user, host = random.choice(USERS), random.choice(HOSTS)
        kind = random.choice(kinds if random.random() < 0.9 else KINDS)
        operation = random_operation(random, kind)
        question = f"{user} {host} {operation.name} {kind.name}"
        connection = cast(Connection, self._connections[user, host])
        if random.random() < 0.2:
            question = f"any {question}"
            allowed = self._authorizer.allows_any(connection, operation, kind)
        else:
            name = random_name(random, kind)
            question = f"one {question} {name}"
            allowed = self._authorizer.allows(connection, operation, kind, name, is_noted=False)
        return question, "ALLOWED" if allowed else "DENIED"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("by_default", [False, True])
def test_every_decision_is_that_of_apache_kafka(tmp_path: Path, by_default: bool) -> None:
    """10,000 random sets of ACLs: all of them as the JSON that we write, some as whole trees of ZooKeeper."""
    seed = os.environ.get("KALDA_SEED", "1")
    random = Random(f"{seed} {by_default}")
    try:
        release = JavaRelease("3.9.1")
    except NotAvailableError as error:
        pytest.skip(str(error))
    lines: list[str] = []
    asked: list[tuple[str, str, Bindings]] = []
    ours = Ours(by_default)
    with ZooKeeperProcess(tmp_path / "zookeeper") as zookeeper:
        for number in range((SETS + 1) // 2):
            bindings = random_bindings(random)
            ours.replace(bindings)
            if number % STORED_EVERY == 0:
                asyncio.run(write(zookeeper.zookeeper, f"/s{number}", bindings))
                lines.append(f"set /s{number}")
            else:
                if number % STORED_EVERY == 1:
                    lines.append("set /empty")
                lines.append("clear")
                lines.extend(
                    f"acl {pattern.pattern_type.name} {pattern.resource_type.name} {pattern.name} "
                    + znodes.encode_entries(entries).decode().replace(" ", "")
                    for pattern, entries in bindings.items()
                )
            for _ in range(QUESTIONS):
                question, answer = ours.answer(random)
                lines.append(question)
                asked.append((question, answer, bindings))
        answers = release.run(
            str(PROGRAM),
            zookeeper.zookeeper,
            ";".join(f"User:{user}" for user in SUPER_USERS),
            str(by_default).lower(),
            text="\n".join(lines) + "\n",
        ).split()

    assert len(asked) == len(answers)
    differing = [
        f"{question}: Kafka says {theirs} with {bindings}"
        for (question, own, bindings), theirs in zip(asked, answers, strict=True)
        if theirs != own
    ]
    assert [] == differing[:5], f"{len(differing)} of {len(asked)} differ, KALDA_SEED={seed}"
    assert {"ALLOWED", "DENIED"} == {own for _, own, _ in asked}
