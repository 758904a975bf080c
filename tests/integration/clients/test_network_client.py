"""The network client against fake brokers that hang, move, throttle, vanish and return."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from kalda.clients import network_client
from kalda.clients.config.common_config import CommonClientConfig
from kalda.clients.coordinator_lookup import CoordinatorType
from kalda.clients.errors import (
    BrokerConnectionError,
    BrokerResponseError,
    RequestTimedOutError,
    UnsupportedApiError,
)
from kalda.clients.metadata import Metadata
from kalda.clients.network_client import NetworkClient
from kalda.clients.node_connection import NodeConnection
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.fetch import FetchRequest, FetchResponse
from kalda.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kalda.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kalda.protocol.schema import Message
from tests.integration.net_client.fake_broker import CLOSE, NEVER, FakeBroker, Reply, cluster_of, metadata_of
from tests.virtual_time import run_virtual

ALL = MetadataRequest(topics=None)
FAST = {"retry_backoff_ms": 20, "retry_backoff_max_ms": 100, "reconnect_backoff_ms": 10}


@asynccontextmanager
async def client_of(*servers: str | FakeBroker, **options: object) -> AsyncIterator[NetworkClient]:
    """Run a client; in the end it must leave no task."""
    addresses = [each if isinstance(each, str) else each.address for each in servers]
    config = CommonClientConfig.from_options({"bootstrap_servers": addresses, **FAST, **options})
    before = asyncio.all_tasks()
    client = NetworkClient(config, Metadata())
    try:
        yield client
    finally:
        await client.close()
    left = {each for each in asyncio.all_tasks() - before if not each.done() and "_serve" not in repr(each)}
    assert not left, f"tasks left over: {left}"


@asynccontextmanager
async def cluster(count: int) -> AsyncIterator[list[FakeBroker]]:
    """Run brokers that know each other; the list may be changed, which moves the cluster."""
    members: list[FakeBroker] = []
    async with AsyncExitStack() as stack:
        for _ in range(count):
            members.append(await stack.enter_async_context(FakeBroker(metadata_of(members))))
        yield members


async def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  # what is waited for happens in another object
            await asyncio.sleep(0.005)


def seconds() -> float:
    return asyncio.get_running_loop().time()


async def test_requests_reach_brokers_at_the_addresses_of_the_metadata() -> None:
    async with cluster(3) as members, client_of(members[0]) as client:
        await client.refresh_metadata(timeout_ms=60_000)
        assert {0, 1, 2} == client.metadata.snapshot.brokers.keys()
        for node_id in range(3):
            response = await client.send(node_id, ALL, MetadataResponse)
            assert "fake" == response.cluster_id
            assert client.is_ready(node_id)
            assert 12 == client.versions(node_id).latest(ApiKey.METADATA)
        # The bootstrap connection became the connection to broker 0.
        assert [1, 1, 1] == [each.connections for each in members]


async def test_many_callers_share_one_attempt_to_connect() -> None:
    async with cluster(1) as members, client_of(members[0]) as client:
        await asyncio.gather(*(client.send_to_any(ALL, MetadataResponse) for _ in range(50)))
        assert 1 == members[0].connections


async def test_a_caller_that_gives_up_does_not_end_the_attempt_of_the_others() -> None:
    async with cluster(1) as members, client_of(members[0]) as client:
        await client.refresh_metadata(timeout_ms=60_000)
        members[0].handler = lambda _: NEVER
        first = asyncio.create_task(client.send(0, ALL, MetadataResponse))
        await asyncio.sleep(0.05)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert client.is_ready(0)


async def test_an_unknown_broker_and_a_closed_client_are_errors() -> None:
    async with cluster(1) as members, client_of(members[0]) as client:
        with pytest.raises(BrokerConnectionError, match="broker 7 is not in the cluster's metadata"):
            await client.send(7, ALL, MetadataResponse)
        await client.close()
        with pytest.raises(BrokerConnectionError, match="this client is closed"):
            await client.send_to_any(ALL, MetadataResponse)


async def test_close_wakes_callers_with_an_error() -> None:
    async with cluster(1) as members, client_of(members[0], reconnect_backoff_ms=60_000) as client:
        await client.refresh_metadata(timeout_ms=60_000)
        members[0].handler = lambda _: NEVER
        waiting = asyncio.create_task(client.send(0, ALL, MetadataResponse))
        await wait_until(lambda: client.in_flight_count(0) == 1)
        await client.close()
        with pytest.raises(BrokerConnectionError, match="closed by this client"):
            await waiting


async def test_close_wakes_callers_that_wait_out_a_back_off() -> None:
    async with client_of(
        "127.0.0.1:1", reconnect_backoff_ms=60_000, reconnect_backoff_max_ms=60_000
    ) as client:
        with pytest.raises(BrokerConnectionError, match="Connection refused"):
            await client.send_to_any(ALL, MetadataResponse)
        waiting = asyncio.create_task(client.send_to_any(ALL, MetadataResponse))
        await asyncio.sleep(0.02)
        await client.close()
        with pytest.raises(BrokerConnectionError, match="closed by this client"):
            await waiting


async def test_a_value_that_the_protocol_cannot_carry_is_an_error_of_the_client() -> None:
    """Callers handle ClientError; the connection is as good as before."""
    async with cluster(1) as (broker,), client_of(broker) as client:
        await client.refresh_metadata(timeout_ms=60_000)
        request = FindCoordinatorRequest(key_type=1000)
        with pytest.raises(UnsupportedApiError, match=r"nothing was sent to .*Request v\d+ cannot carry"):
            await client.send(0, request, FindCoordinatorResponse)
        assert isinstance(await client.send(0, ALL, MetadataResponse), MetadataResponse)


async def test_a_paused_broker_does_not_hold_up_requests_that_any_broker_can_answer() -> None:
    """Java's client waits `request.timeout.ms`, here an hour, for it."""
    async with cluster(3) as members, client_of(members[0], request_timeout_ms=3_600_000) as client:
        await client.refresh_metadata(timeout_ms=60_000)
        for paused in members[:2]:
            paused.handler = lambda _: NEVER
        async with asyncio.timeout(60):
            for _ in range(4):
                await client.send_to_any(ALL, MetadataResponse)
            await client.send(2, ALL, MetadataResponse)


async def test_a_bootstrap_server_that_accepts_and_never_answers_is_overtaken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        async with cluster(1) as members:
            for _ in range(4):
                async with client_of(address, members[0], request_timeout_ms=3_600_000) as client:
                    await client.refresh_metadata(timeout_ms=60_000)


async def test_a_request_in_flight_fails_when_its_broker_dies() -> None:
    async with cluster(2) as members, client_of(members[0]) as client:
        await client.refresh_metadata(timeout_ms=60_000)
        members[1].handler = lambda _: NEVER
        waiting = asyncio.create_task(client.send(1, ALL, MetadataResponse))
        await wait_until(lambda: client.in_flight_count(1) == 1)
        await members[1].stop()
        with pytest.raises(BrokerConnectionError, match="lost"):
            await waiting
        with pytest.raises(BrokerConnectionError, match="Connection refused"):
            await client.send(1, ALL, MetadataResponse)
        await client.send(0, ALL, MetadataResponse)


async def test_a_request_that_times_out_closes_the_connection() -> None:
    async with cluster(1) as members, client_of(members[0]) as client:
        await client.refresh_metadata(timeout_ms=60_000)
        members[0].handler = lambda _: NEVER
        with pytest.raises(RequestTimedOutError, match=r"did not answer Metadata within 0\.2 s"):
            await client.send(0, ALL, MetadataResponse, timeout_ms=200)
        members[0].handler = metadata_of(members)
        await client.send(0, ALL, MetadataResponse)
        assert 2 == members[0].connections


async def test_a_broker_that_moved_is_followed() -> None:
    async with cluster(2) as members, client_of(members[0]) as client:
        await client.refresh_metadata(timeout_ms=60_000)
        await client.send(1, ALL, MetadataResponse)
        async with FakeBroker(metadata_of(members)) as moved:
            old, members[1] = members[1], moved
            await old.stop()
            await client.retry("metadata", lambda: client.send(1, ALL, MetadataResponse), timeout_ms=60_000)
            assert 1 == moved.connections


async def test_a_cluster_that_moved_away_is_found_by_its_bootstrap_servers() -> None:
    """KIP-899."""
    async with cluster(1) as old, cluster(1) as new, FakeBroker(lambda _: cluster_of(*now)) as bootstrap:
        now = old
        async with client_of(bootstrap) as client:
            await client.refresh_metadata(timeout_ms=60_000)
            now = new
            await old[0].stop()
            await client.retry("m", lambda: client.send(0, ALL, MetadataResponse), timeout_ms=60_000)
            assert (new[0].host, new[0].port) == (
                client.metadata.snapshot.brokers[0].host,
                client.metadata.snapshot.brokers[0].port,
            )


async def test_without_recovery_only_known_brokers_are_asked() -> None:
    async with cluster(1) as old, cluster(1) as new, FakeBroker(lambda _: cluster_of(*now)) as bootstrap:
        now = old
        async with client_of(bootstrap, metadata_recovery_strategy="none") as client:
            await client.refresh_metadata(timeout_ms=60_000)
            now = new
            await old[0].stop()
            with pytest.raises(RequestTimedOutError, match="last: no connection to"):
                await client.refresh_metadata(timeout_ms=500)


async def test_brokers_that_are_gone_are_tried_with_back_off_and_found_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    attempts = 0
    real_connect = NodeConnection._open

    async def counting(self: Any) -> Any:
        nonlocal attempts
        attempts += 1
        return await real_connect(self)

    with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(NodeConnection, "_open", counting)
        options = {"reconnect_backoff_ms": 50, "reconnect_backoff_max_ms": 400}
        async with cluster(2) as members, client_of(members[0], **options) as client:
            await client.refresh_metadata(timeout_ms=60_000)
            for member in members:
                await member.stop()
            attempts = 0
            began = seconds()
            sends = [
                asyncio.create_task(
                    client.retry("s", lambda: client.send(1, ALL, MetadataResponse), timeout_ms=60_000)
                )
                for _ in range(20)
            ]
            await asyncio.sleep(3)
            await wait_until(lambda: attempts >= 10)
            # Three addresses, each tried after 50, 100, 200, 400, 400, … ms; callers share the attempts.
            assert attempts <= 3 * (5 + (seconds() - began) / 0.3)
            for member in members:
                await member.start()
            await asyncio.gather(*sends)
    assert 1 == len([each for each in caplog.records if "No broker of" in each.getMessage()])


async def test_a_lost_broker_is_logged_once_and_its_return_too(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kalda.clients.node_connection"):
        async with cluster(1) as members, client_of(members[0]) as client:
            await client.refresh_metadata(timeout_ms=60_000)
            await members[0].stop()
            for _ in range(5):
                with pytest.raises(BrokerConnectionError):
                    await client.send(0, ALL, MetadataResponse)
            await members[0].start()
            await client.retry("m", lambda: client.send(0, ALL, MetadataResponse), timeout_ms=60_000)
    messages = [each.getMessage() for each in caplog.records]
    # Twice at most: the broker is also a bootstrap server, with a connection of its own.
    assert 1 <= len([each for each in messages if each.startswith("No connection to broker")]) <= 2
    assert 1 <= len([each for each in messages if each.startswith("Connected to broker")]) <= 2


async def test_a_throttle_is_heeded_before_the_next_request() -> None:
    """KIP-219: the broker answers at once and expects the client to pause."""
    replies: list[Reply] = []
    async with cluster(2) as members, client_of(members[0]) as client:
        await client.refresh_metadata(timeout_ms=60_000)
        members[1].handler = lambda _: replies.pop() if replies else cluster_of(*members)
        replies.append(MetadataResponse(throttle_time_ms=300, brokers=cluster_of(*members).brokers))
        await client.send(1, ALL, MetadataResponse)
        await asyncio.sleep(0)
        assert not client.is_ready(1)
        assert 0.2 < client.connection_delay(1) <= 0.3
        began = seconds()
        await client.send(1, ALL, MetadataResponse)
        assert seconds() - began >= 0.25
        assert 1 == members[1].connections


async def test_idle_connections_are_closed_and_opened_again() -> None:
    async with cluster(2) as members, client_of(members[0], connections_max_idle_ms=300) as client:
        client.start()
        await client.refresh_metadata(timeout_ms=60_000)
        await client.send(1, ALL, MetadataResponse)
        assert 1 == members[1].open_count
        await wait_until(lambda: members[1].open_count == 0)
        assert 0.0 == client.connection_delay(1)
        await client.send(1, ALL, MetadataResponse)
        assert 2 == members[1].connections


async def test_a_connection_with_a_request_in_flight_is_not_idle() -> None:
    async with cluster(1) as members, client_of(members[0], connections_max_idle_ms=100) as client:
        await client.refresh_metadata(timeout_ms=60_000)
        members[0].handler = lambda _: NEVER
        waiting = asyncio.create_task(client.send(0, ALL, MetadataResponse))
        await asyncio.sleep(0.4)
        assert 1 == client.in_flight_count(0)
        waiting.cancel()


async def test_every_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo

    def resolve(host: str, port: int, *arguments: Any, **named: Any) -> Any:
        if host == "kafka.example":
            if named.get("flags"):
                raise socket.gaierror(socket.EAI_NONAME, "not numeric")
            first = real("127.0.0.2", 1, type=socket.SOCK_STREAM)
            return first + real("127.0.0.1", port, type=socket.SOCK_STREAM)
        return real(host, port, *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    async with cluster(1) as members, client_of(f"kafka.example:{members[0].port}") as client:
        await client.refresh_metadata(timeout_ms=60_000)


async def test_canonical_names_replace_a_bootstrap_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """`client.dns.lookup`: one name may stand for many hosts, each asked under its own name."""
    real = socket.getaddrinfo
    asked: list[str] = []

    def resolve(host: str, port: int, *arguments: Any, **named: Any) -> Any:
        asked.append(host)
        if host == "kafka.example":
            found = [*real("127.0.0.2", port, type=socket.SOCK_STREAM)]
            return found + real("127.0.0.1", port, type=socket.SOCK_STREAM)
        if host.startswith("host-"):
            if named.get("flags"):
                raise socket.gaierror(socket.EAI_NONAME, "not numeric")
            return real("127.0.0.1" if host == "host-1" else "127.0.0.2", port, type=socket.SOCK_STREAM)
        return real(host, port, *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "getnameinfo", lambda address, _: (f"host-{address[0][-1]}", "9092"))
    async with (
        cluster(1) as members,
        client_of(
            f"kafka.example:{members[0].port}", client_dns_lookup="resolve_canonical_bootstrap_servers_only"
        ) as client,
    ):
        await client.refresh_metadata(timeout_ms=60_000)
    assert "host-1" in asked


async def test_brokers_with_ipv6_addresses() -> None:
    try:
        members: list[FakeBroker] = []
        async with FakeBroker(metadata_of(members), host="::1") as broker:
            members.append(broker)
            async with client_of(broker) as client:
                await client.refresh_metadata(timeout_ms=60_000)
                await client.send(0, ALL, MetadataResponse)
                await broker.stop()
                with pytest.raises(BrokerConnectionError, match=rf"\[::1\]:{broker.port}"):
                    await client.send(0, ALL, MetadataResponse)
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")


async def test_a_coordinator_has_a_connection_of_its_own() -> None:
    """A JoinGroup may wait for minutes, and responses of one connection come in order."""

    def answer(request: Message) -> Reply:
        if isinstance(request, FindCoordinatorRequest):
            found = [
                Coordinator(key=key, node_id=0, host=members[0].host, port=members[0].port)
                for key in request.coordinator_keys
            ]
            return FindCoordinatorResponse(coordinators=found)
        return cluster_of(*members)

    members: list[FakeBroker] = []
    async with FakeBroker(answer) as broker:
        members.append(broker)
        async with client_of(broker) as client:
            await client.refresh_metadata(timeout_ms=60_000)
            node_id = await client.coordinator("g", CoordinatorType.GROUP)
            assert network_client.coordinator_node_id(0) == node_id
            await client.send(node_id, ALL, MetadataResponse)
            await client.send(0, ALL, MetadataResponse)
            assert 2 == broker.connections


async def test_an_api_that_the_broker_lacks_is_an_error_with_the_versions() -> None:
    async with cluster(1) as members, client_of(members[0]) as client:
        await client.refresh_metadata(timeout_ms=60_000)
        with pytest.raises(UnsupportedApiError, match="offers no version of Fetch"):
            await client.send(0, FetchRequest(), FetchResponse)


def test_retries_end_with_the_time_and_name_the_last_failure() -> None:
    async def main() -> None:
        async with client_of("127.0.0.1:1") as client:
            failures = 0

            async def fail() -> None:
                nonlocal failures
                failures += 1
                raise BrokerResponseError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "t-0")

            began = seconds()
            with pytest.raises(
                RequestTimedOutError, match=r"work: gave up after 300 ms; last: t-0: NOT_LEADER"
            ):
                await client.retry("work", fail, timeout_ms=300)
            assert seconds() - began <= 0.3
            assert 3 <= failures <= 8

            async def hang() -> None:
                await client.refresh_metadata(timeout_ms=60_000)

            with pytest.raises(RequestTimedOutError, match=r"work: gave up after 300 ms; last: .*refused"):
                await client.retry("work", hang, timeout_ms=300)

    run_virtual(main())


async def test_a_failure_for_good_is_not_retried() -> None:
    async with client_of("127.0.0.1:1") as client:
        failures: list[int] = []

        async def fail() -> None:
            failures.append(1)
            raise BrokerResponseError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t")

        with pytest.raises(BrokerResponseError):
            await client.retry("work", fail, timeout_ms=60_000)
        assert 1 == len(failures)


@pytest.mark.parametrize("reply", [b"\x00\x00\x00\x05junk!", CLOSE, b"\xff\xff\xff\xff"])
async def test_a_broker_that_answers_with_junk_is_passed_over(reply: Reply) -> None:
    async with (
        FakeBroker(lambda _: reply) as bad,
        cluster(1) as members,
        client_of(bad, members[0]) as client,
    ):
        for _ in range(5):
            await client.refresh_metadata(timeout_ms=60_000)
