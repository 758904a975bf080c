"""Our decisions beside those of Apache Kafka's own AclAuthorizer, which reads the ACLs that we wrote."""

import asyncio
import os
from pathlib import Path
from random import Random

import pytest

from benchmarks.apache_kafka import NotAvailableError
from kalda.security.acl.model import (
    RESOURCE_OPERATIONS,
    AccessControlEntry,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from kalda.security.acl.rules import AclRules
from kalda.testing import ZooKeeperProcess
from kalda.zk.client.acl_store import AclStore
from kalda.zk.client.kazoo.ensemble_client import EnsembleClient
from tests.compat.java_releases import JavaRelease

PROGRAM = Path(__file__).parent / "java" / "Authorize.java"
SETS = 6
QUESTIONS = 1700
SUPER_USER = "root"
USERS = ("alice", "bob", SUPER_USER)
HOSTS = ("127.0.0.1", "10.0.0.9")
KINDS = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)

Bindings = dict[ResourcePattern, set[AccessControlEntry]]


def random_name(random: Random) -> str:
    return "".join(random.choice("ab") for _ in range(random.randrange(1, 4)))


def random_bindings(random: Random) -> Bindings:
    found: Bindings = {}
    for _ in range(random.randrange(40)):
        kind = random.choice(KINDS)
        pattern_type = random.choice((PatternType.LITERAL, PatternType.PREFIXED))
        name = "*" if random.random() < 0.15 else random_name(random)
        entry = AccessControlEntry(
            random.choice(("User:alice", "User:bob", "User:*")),
            random.choice(("*", *HOSTS)),
            random.choice((AclOperation.ALL, *sorted(RESOURCE_OPERATIONS[kind]))),
            random.choice((PermissionType.ALLOW, PermissionType.ALLOW, PermissionType.DENY)),
        )
        found.setdefault(ResourcePattern(kind, name, pattern_type), set()).add(entry)
    return found


async def write(hosts: str, chroot: str, bindings: Bindings) -> None:
    client = await EnsembleClient.connect(
        hosts + chroot, session_timeout_ms=10_000, connection_timeout_ms=10_000
    )
    store = AclStore(client)
    await store.start(lambda pattern, entries: None)
    for pattern, entries in bindings.items():
        await store.change(pattern, lambda _, entries=entries: entries)  # type: ignore[misc]
    await store.close()
    await client.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("by_default", [False, True])
def test_every_decision_is_that_of_apache_kafka(tmp_path: Path, by_default: bool) -> None:
    random = Random(int(os.environ.get("KALDA_SEED", "1")))
    try:
        release = JavaRelease("3.9.1")
    except NotAvailableError as error:
        pytest.skip(str(error))
    lines: list[str] = []
    ours: list[str] = []
    with ZooKeeperProcess(tmp_path / "zookeeper") as zookeeper:
        for number in range(SETS):
            bindings = random_bindings(random)
            asyncio.run(write(zookeeper.zookeeper, f"/s{number}", bindings))
            rules = AclRules(super_users=[f"User:{SUPER_USER}"], allows_everyone_by_default=by_default)
            for pattern, entries in bindings.items():
                rules.set(pattern, entries)
            lines.append(f"set /s{number}")
            for _ in range(QUESTIONS):
                user, host, kind = random.choice(USERS), random.choice(HOSTS), random.choice(KINDS)
                operation = random.choice(sorted(RESOURCE_OPERATIONS[kind]))
                question = f"{user} {host} {operation.name} {kind.name}"
                if random.random() < 0.2:
                    lines.append(f"any {question}")
                    allowed = rules.allows_any(f"User:{user}", host, operation, kind)
                else:
                    name = random_name(random)
                    lines.append(f"one {question} {name}")
                    allowed = rules.allows(f"User:{user}", host, operation, kind, name)
                ours.append("ALLOWED" if allowed else "DENIED")
        answers = release.run(
            str(PROGRAM),
            zookeeper.zookeeper,
            f"User:{SUPER_USER}",
            str(by_default).lower(),
            text="\n".join(lines) + "\n",
        ).split()

    questions = [line for line in lines if not line.startswith("set")]
    assert len(questions) == len(answers)
    differing = [
        f"{question}: Kafka says {theirs}"
        for question, theirs, own in zip(questions, answers, ours, strict=True)
        if theirs != own
    ]
    assert [] == differing
    assert {"ALLOWED", "DENIED"} == set(ours)
