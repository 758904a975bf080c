"""A broker's connections to etcd meet the faults of its links."""

import asyncio
import random

from kalda.broker.process.faulty_etcd import cuttable_links
from kalda.broker.process.faulty_links import OwnLinks
from kalda.etcd.client import EtcdClient
from kalda.etcd.link import OpenLink
from kalda.faults import FaultPlan
from kalda.zookeeper.port import SessionState
from tests.unit.etcd.store_link import StoreLink, StoreServer

WAIT_SECONDS = 60.0


async def test_a_cut_suspends_the_session_until_it_ends() -> None:
    """Without it a test of a broker that is cut off from etcd would pass and test nothing."""
    server, links = StoreServer(), OwnLinks()
    links.join(0, lambda host, port: None)
    opened: OpenLink = lambda endpoint, _: StoreLink(endpoint, server)  # noqa: E731  # typed for its use
    client = await EtcdClient.connect(
        "store:1",
        session_timeout_ms=60_000,
        connection_timeout_ms=60_000,
        open_link=cuttable_links(opened, links.endpoint),
        random=random.Random(1),
    )
    states: list[SessionState] = []
    changed = asyncio.Event()

    def note(state: SessionState) -> None:
        states.append(state)
        changed.set()

    client.add_state_listener(note)
    (other,) = FaultPlan.parse("link:cut@1-coordinator").link_faults
    links.add_fault(other)
    await client.create("/before", b"")
    (fault,) = FaultPlan.parse("link:cut@0-coordinator").link_faults
    links.add_fault(fault)
    async with asyncio.timeout(WAIT_SECONDS):
        await changed.wait()
    assert [SessionState.SUSPENDED] == states
    waiting = asyncio.ensure_future(client.create("/after", b""))
    links.remove_fault(fault)
    async with asyncio.timeout(WAIT_SECONDS):
        assert "/after" == await waiting
    assert [SessionState.SUSPENDED, SessionState.CONNECTED] == states
    assert ["after", "before"] == sorted(await client.children("/"))
    await client.close()
