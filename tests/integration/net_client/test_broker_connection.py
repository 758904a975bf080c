"""One connection against brokers that misbehave, over real sockets."""

import asyncio
import struct
import tracemalloc

import pytest

from kalda.common.api_keys import ApiKey
from kalda.net.client.broker_connection import BrokerConnection
from kalda.net.client.client_errors import BrokerConnectionError, RequestTimedOutError, UnsupportedApiError
from kalda.net.client.frame_receiver import OWN_CAPACITY
from kalda.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)
from kalda.protocol.protocol_errors import MessageError
from kalda.protocol.schema import Message
from tests.integration.net_client.fake_broker import CLOSE, NEVER, FakeBroker, Handler, Reply, cluster_of

ALL = MetadataRequest(topics=None)


async def connect(broker: FakeBroker, timeout_seconds: float = 30.0) -> BrokerConnection:
    return await BrokerConnection.open(
        broker.host, broker.port, client_id="test", timeout_seconds=timeout_seconds
    )


def ask(connection: BrokerConnection, timeout_seconds: float = 30.0) -> "asyncio.Future[Message]":
    return connection.send(ALL, 12, timeout_seconds)


def always(reply: Reply) -> Handler:
    return lambda _: reply


async def test_requests_are_pipelined_and_answered_in_order() -> None:
    answered: list[int] = []

    def answer(_: Message) -> Message:
        answered.append(len(answered))
        return MetadataResponse(cluster_id=f"answer-{answered[-1]}")

    async with FakeBroker(answer) as broker:
        connection = await connect(broker)
        futures = [ask(connection) for _ in range(50)]
        assert 50 == connection.in_flight_count
        responses = await asyncio.gather(*futures)
        assert 0 == connection.in_flight_count
        connection.close()

    names = [each.cluster_id for each in responses if isinstance(each, MetadataResponse)]
    assert [f"answer-{index}" for index in range(50)] == names


@pytest.mark.parametrize("highest", [0, 2, 3])
async def test_an_older_broker_is_asked_for_its_versions_in_one_that_it_knows(highest: int) -> None:
    """KIP-511."""
    versions = {ApiKey.API_VERSIONS: (0, highest), ApiKey.METADATA: (0, 7)}
    async with FakeBroker(always(NEVER), versions=versions) as broker:
        connection = await connect(broker)
        connection.close()

    assert 7 == connection.versions.latest(ApiKey.METADATA)
    assert (ApiKey.API_VERSIONS, highest) == broker.request_versions[-1]
    with pytest.raises(UnsupportedApiError, match="offers no version of Fetch"):
        connection.versions.latest(ApiKey.FETCH)


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (b"\x7f\xff\xff\xff", "a frame of 2147483647 bytes"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "a frame of 1213486160 bytes"),
        (struct.pack(">iix", 5, 12345), "response 12345 came where Metadata . was due"),
        (struct.pack(">i", 0), "sent a bad response"),
        (struct.pack(">iixH", 7, 2, 0), "sent a bad response"),
        (CLOSE, r"closed by the broker at the first request; does the listener require a login\?"),
        (struct.pack(">i", 100) + b"x" * 20, "did not answer Metadata within 0.5 s"),
    ],
)
async def test_a_bad_answer_closes_the_connection_and_fails_all_that_wait(reply: Reply, message: str) -> None:
    async with FakeBroker(lambda _: replies.pop(0)) as broker:
        replies = [reply, NEVER, NEVER]
        connection = await connect(broker)
        futures = [ask(connection, 0.5) for _ in range(3)]
        for future in futures:
            with pytest.raises((BrokerConnectionError, RequestTimedOutError), match=message):
                await future
        assert connection.is_closed
        with pytest.raises(BrokerConnectionError, match=message):
            ask(connection)


async def test_a_listener_that_closes_before_it_answers_may_use_tls() -> None:
    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        with pytest.raises(
            BrokerConnectionError, match=r"does the listener use TLS\? \(`security.protocol`\)$"
        ):
            await BrokerConnection.open(host, port, client_id="test", timeout_seconds=5)


async def test_an_announced_size_takes_no_memory() -> None:
    """A broker, or what poses as one, must not make a client touch 1 GiB with four bytes."""
    async with FakeBroker(always(struct.pack(">i", 500_000_000) + b"x" * 50)) as broker:
        connection = await connect(broker)
        tracemalloc.start()
        try:
            with pytest.raises(RequestTimedOutError):
                await ask(connection, 0.3)
            assert tracemalloc.get_traced_memory()[1] < 2 * OWN_CAPACITY
        finally:
            tracemalloc.stop()


async def test_a_large_answer_arrives_whole() -> None:
    """It is 18 MB, larger than the first buffer, which grows twice."""
    brokers = [MetadataResponseBroker(node_id=node, host="h" * 30_000, port=1) for node in range(600)]
    async with FakeBroker(always(MetadataResponse(brokers=brokers))) as broker:
        connection = await connect(broker)
        response = await ask(connection)
        connection.close()

    assert isinstance(response, MetadataResponse)
    assert brokers == response.brokers


async def test_a_large_request_is_written_in_pieces() -> None:
    """The kernel's send buffer takes a part; the rest follows when the broker has read."""
    names = [MetadataRequestTopic(name=f"{number:0240}") for number in range(20_000)]
    async with FakeBroker(always(MetadataResponse(cluster_id="c"))) as broker:
        connection = await connect(broker)
        first = connection.send(MetadataRequest(topics=names), 12, 10.0)
        await asyncio.gather(first, ask(connection, 10.0))
        connection.close()

    received = [each.topics for each in broker.requests if isinstance(each, MetadataRequest)]
    assert [20_000, None] == [None if each is None else len(each) for each in received]


async def test_silence_fails_all_requests_at_the_first_deadline_and_closes() -> None:
    """A late response must never be taken for the response to a later request."""
    async with FakeBroker(always(NEVER)) as broker:
        connection = await connect(broker)
        late, soon = ask(connection, 60.0), ask(connection, 0.2)
        began = asyncio.get_running_loop().time()
        with pytest.raises(RequestTimedOutError, match=r"did not answer Metadata within 0\.2 s"):
            await soon
        with pytest.raises(RequestTimedOutError):
            await late
        assert asyncio.get_running_loop().time() - began < 30


async def test_the_answer_of_a_cancelled_request_is_dropped() -> None:
    replies: list[Reply] = [MetadataResponse(cluster_id="second"), MetadataResponse(cluster_id="first")]
    async with FakeBroker(lambda _: replies.pop()) as broker:
        connection = await connect(broker)
        first, second = ask(connection), ask(connection)
        first.cancel()
        response = await second
        connection.close()

    assert isinstance(response, MetadataResponse)
    assert "second" == response.cluster_id


async def test_a_request_that_cannot_be_encoded_leaves_the_connection_usable() -> None:
    async with FakeBroker(always(MetadataResponse(cluster_id="c"))) as broker:
        connection = await connect(broker)
        with pytest.raises(MessageError):
            # Version 0 has no null for the list.
            connection.send(ALL, 0, 5.0)
        assert isinstance(await ask(connection), MetadataResponse)
        connection.close()


async def test_a_broker_that_accepts_and_never_answers_times_out() -> None:
    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)

    accepted: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(RequestTimedOutError, match=rf"127.0.0.1:{port}"):
        await BrokerConnection.open("127.0.0.1", port, client_id="t", timeout_seconds=0.2)
    server.close()
    for writer in accepted:
        writer.close()


async def test_refused_and_unknown_addresses_are_named() -> None:
    with pytest.raises(BrokerConnectionError, match=r"no connection to 127.0.0.1:1: Connection refused"):
        await BrokerConnection.open("127.0.0.1", 1, client_id="t", timeout_seconds=5)
    with pytest.raises(BrokerConnectionError, match=r"no connection to no\.such\.host\.invalid:9092: "):
        await BrokerConnection.open("no.such.host.invalid", 9092, client_id="t", timeout_seconds=20)
    with pytest.raises(BrokerConnectionError, match=r"not a host name"):
        await BrokerConnection.open("a..b", 9092, client_id="t", timeout_seconds=5)


async def test_close_fails_requests_in_flight_once() -> None:
    closed: list[BrokerConnection] = []
    async with FakeBroker(always(NEVER)) as broker:
        connection = await BrokerConnection.open(
            broker.host, broker.port, client_id="t", timeout_seconds=5, on_closed=closed.append
        )
        future = ask(connection)
        connection.close()
        connection.close()
        with pytest.raises(BrokerConnectionError, match="closed by this client"):
            await future

    assert [connection] == closed


async def test_a_connection_counts_its_bytes() -> None:
    async with FakeBroker(always(cluster_of())) as broker:
        connection = await connect(broker)
        sent, received = connection.bytes_sent, connection.bytes_received
        await ask(connection)
        assert connection.versions.peer == broker.address
        assert connection.bytes_sent > sent > 0
        assert connection.bytes_received > received > 0
        connection.close()


async def test_a_response_reaches_its_callback_in_the_turn_in_which_it_is_read() -> None:
    """What a user waits for should not wait for another turn of the loop."""
    seen: list[str] = []
    async with FakeBroker(always(MetadataResponse(cluster_id="c"))) as broker:
        connection = await connect(broker)
        future = connection.send(ALL, 12, 5.0, lambda done: seen.append(f"callback, {done.done()}"))
        future.add_done_callback(lambda _: seen.append("future"))
        await future
        connection.close()

    assert ["callback, True", "future"] == seen


async def test_a_callback_that_fails_does_not_hold_up_the_next_response() -> None:
    faults: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context["message"]))

    def fail(_: "asyncio.Future[Message]") -> None:
        raise ValueError("a fault of the caller")

    async with FakeBroker(always(MetadataResponse(cluster_id="c"))) as broker:
        connection = await connect(broker)
        first, second = connection.send(ALL, 12, 5.0, fail), ask(connection)
        await asyncio.gather(first, second)
        connection.close()

    assert [f"a response of {connection.peer} was not processed"] == faults


async def test_a_lost_connection_reaches_the_callback_after_it_is_closed() -> None:
    """Its owner has to know before a callback sends the next request."""
    seen: list[str] = []
    async with FakeBroker(always(CLOSE)) as broker:
        connection = await BrokerConnection.open(
            broker.host,
            broker.port,
            client_id="test",
            timeout_seconds=5.0,
            on_closed=lambda _: seen.append("closed"),
        )
        future = connection.send(ALL, 12, 5.0, lambda done: seen.append(type(done.exception()).__name__))
        with pytest.raises(BrokerConnectionError):
            await future

    assert ["closed", "BrokerConnectionError"] == seen


async def test_requests_that_are_held_back_go_out_together() -> None:
    async with FakeBroker(always(MetadataResponse(cluster_id="answer"))) as broker:
        connection = await connect(broker)
        sent_before = len(broker.request_versions)
        connection.hold_writes()
        futures = [ask(connection) for _ in range(3)]
        await asyncio.sleep(0.05)
        assert sent_before == len(broker.request_versions)
        assert 3 == connection.in_flight_count

        connection.write_held()
        assert 3 == len(await asyncio.gather(*futures))
        # Without a hold, each request is written at once again.
        assert isinstance(await ask(connection), MetadataResponse)
        connection.close()


async def test_requests_that_are_held_back_fail_when_the_connection_is_closed() -> None:
    async with FakeBroker(always(MetadataResponse())) as broker:
        connection = await connect(broker)
        connection.hold_writes()
        future = ask(connection)
        connection.close()
        connection.write_held()
        with pytest.raises(BrokerConnectionError, match="closed by this client"):
            await future


async def test_the_owner_acts_once_after_the_responses_that_arrived_together() -> None:
    """In the same turn of the loop, because another turn costs a system call and a wait for the GIL."""
    done_at_reads: list[int] = []
    futures: list[asyncio.Future[Message]] = []

    async with FakeBroker(always(MetadataResponse(cluster_id="answer"))) as broker:
        connection = await BrokerConnection.open(
            broker.host,
            broker.port,
            client_id="test",
            timeout_seconds=5.0,
            on_read=lambda: done_at_reads.append(sum(future.done() for future in futures)),
        )
        done_at_reads.clear()
        futures += [ask(connection) for _ in range(3)]
        await asyncio.gather(*futures)
        connection.close()

    assert 1 <= len(done_at_reads) <= 3
    assert sorted(set(done_at_reads)) == done_at_reads
    assert 3 == done_at_reads[-1]
