"""Which znodes everybody may change, and which are closed."""

import logging

import pytest

from kalda.broker.process.brokers_login import OwnAcl
from kalda.cluster import znode_audit
from kalda.cluster.znode_audit import close_open_znodes
from kalda.zookeeper.acl import Acl
from kalda.zookeeper.server.embedded import EmbeddedClient
from kalda.zookeeper.server.processor_requests import CreateNode, SetAcl
from kalda.zookeeper.server.txns import OPEN_ACL
from kalda.zookeeper.znode_access import ZnodeAccess, is_open
from tests.unit.cluster.in_memory import InMemoryZooKeeper

OWN_ACL = OwnAcl()
ANYONE_READS = Acl(1, "world", "anyone")
FOREIGN = (Acl(31, "digest", "mallory:hash"),)
SYSTEM = {"/zookeeper", "/zookeeper/quota"}


async def client_of(*created: tuple[str, tuple[Acl, ...]]) -> EmbeddedClient:
    """Return a session of a server that has these znodes, whose processes create closed ones."""
    client = await InMemoryZooKeeper(own_acl=OWN_ACL).connect()
    await client._submit([CreateNode(path, b"", acl) for path, acl in created])
    return client


async def lists(client: EmbeddedClient, *paths: str) -> list[tuple[Acl, ...]]:
    return [(await client.access_list(path))[0] for path in paths]


@pytest.mark.parametrize(
    ("acl", "access", "expected"),
    [
        (OPEN_ACL, ZnodeAccess.READABLE, True),
        (OPEN_ACL, ZnodeAccess.OPEN, False),
        ((), ZnodeAccess.READABLE, True),
        (OWN_ACL("/"), ZnodeAccess.READABLE, False),
        (OWN_ACL("/"), ZnodeAccess.PRIVATE, True),
        ((Acl(8 | 1, "world", "anyone"),), ZnodeAccess.READABLE, True),
        ((Acl(31, "ip", "0.0.0.0/0"),), ZnodeAccess.READABLE, True),
        ((Acl(31, "ip", "10.0.0.1"),), ZnodeAccess.PRIVATE, False),
        (FOREIGN, ZnodeAccess.PRIVATE, False),
    ],
)
def test_list_is_open_if_everybody_may_do_more_than_intended(
    acl: tuple[Acl, ...], access: ZnodeAccess, expected: bool
) -> None:
    assert expected == is_open(acl, access)


async def test_every_open_znode_of_the_brokers_own_server_is_closed_once() -> None:
    """The root too: its list decides who deletes /controller and the other leaves below it."""
    made = ["/brokers", "/brokers/topics", "/consumers", "/consumers/g", "/controller_epoch", "/evil"]
    made += ["/config", "/config/users", "/config/users/alice"]
    client = await client_of(*((path, OPEN_ACL) for path in made))
    found = await close_open_znodes(client, own=OWN_ACL.entry)
    assert {"/", *SYSTEM, *made} == set(found.closed)
    assert "/" == found.closed[-1]
    assert ([], [], []) == (found.left, found.taken, found.foreign)
    assert [OWN_ACL(path) for path in ["/", *made]] == await lists(client, "/", *made)
    assert [] == (await close_open_znodes(client, own=OWN_ACL.entry)).closed


async def test_root_that_an_earlier_release_left_open_is_closed() -> None:
    client = await client_of(("/brokers", OWN_ACL("/brokers")))
    found = await close_open_znodes(client, own=OWN_ACL.entry)
    assert {"/", *SYSTEM} == set(found.closed)
    assert not found.is_new_cluster


async def test_znodes_of_old_consumers_and_of_other_programs_stay_in_a_shared_ensemble() -> None:
    made = ["/brokers", "/consumers", "/consumers/g", "/hbase", "/hbase/x"]
    client = await client_of(*((path, OPEN_ACL) for path in made))
    found = await close_open_znodes(client)
    assert {"/", *SYSTEM, "/brokers"} == set(found.closed)
    assert ["/consumers", "/hbase"] == sorted(found.left)


async def test_secrets_that_everybody_reads_are_closed() -> None:
    readable = (OWN_ACL.entry, ANYONE_READS)
    client = await client_of(
        ("/config", readable), ("/config/users", readable), ("/config/users/a", readable)
    )
    assert {"/config/users", "/config/users/a"} < set((await close_open_znodes(client)).closed)


@pytest.mark.parametrize("acl", [FOREIGN, (OWN_ACL.entry, *FOREIGN), (*FOREIGN, ANYONE_READS, OWN_ACL.entry)])
async def test_znode_of_another_user_is_taken_back_on_the_brokers_own_server(acl: tuple[Acl, ...]) -> None:
    """While the root was open, somebody could replace /controller_epoch by one with a list of their own.

    The brokers' user has a known name, so the list may name it beside them.
    """
    client = await client_of(("/brokers", OWN_ACL("/brokers")), ("/controller_epoch", acl))
    assert ["/controller_epoch"] == (await close_open_znodes(client, own=OWN_ACL.entry)).taken
    assert [OWN_ACL("/controller_epoch")] == await lists(client, "/controller_epoch")


@pytest.mark.parametrize(("path", "is_taken"), [("/config", False), ("/config/users", True)])
async def test_another_user_may_read_what_everybody_may_read(path: str, *, is_taken: bool) -> None:
    reader = Acl(1, "digest", "monitor:hash")
    client = await client_of(("/config", OWN_ACL("/config")), ("/config/users", OWN_ACL("/config/users")))
    await client._submit([SetAcl(path, (OWN_ACL.entry, reader), -1)])
    assert ([path] if is_taken else []) == (await close_open_znodes(client, own=OWN_ACL.entry)).taken


async def test_nothing_is_changed_where_access_lists_are_off(caplog: pytest.LogCaptureFixture) -> None:
    client = await client_of(("/brokers", OPEN_ACL))
    found = await close_open_znodes(client, own=OWN_ACL.entry, closes=False)
    assert {"/", *SYSTEM, "/brokers"} == set(found.left)
    found.log()
    (record,) = caplog.records
    assert logging.WARNING == record.levelno
    text = record.getMessage()
    assert "4 znodes: /, /brokers, /zookeeper, /zookeeper/quota; start every broker with" in text


@pytest.mark.parametrize(("made", "level"), [((), logging.INFO), (("/brokers",), logging.WARNING)])
async def test_closed_znodes_are_worth_a_warning_unless_the_cluster_is_new(
    made: tuple[str, ...], level: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    client = await client_of(*((path, OPEN_ACL) for path in made))
    caplog.clear()
    (await close_open_znodes(client, own=OWN_ACL.entry)).log()
    assert [level] == [record.levelno for record in caplog.records]


async def test_later_start_looks_at_a_bounded_number_of_znodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the root is open, all are looked at."""
    monkeypatch.setattr(znode_audit, "_LOOKED_AT_MAX", 1)
    monkeypatch.setattr(znode_audit, "_AT_ONCE_MAX", 1)
    client = await client_of(("/brokers", OPEN_ACL))
    assert "/brokers" in (await close_open_znodes(client)).closed
    await client.create("/admin")
    await client._submit([CreateNode("/admin/x", b"", OPEN_ACL)])
    assert [] == (await close_open_znodes(client)).closed
