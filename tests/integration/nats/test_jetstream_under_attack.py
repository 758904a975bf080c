"""JetStream with clients that ask for too much, and with records that no client of NATS writes."""

import asyncio
import json
from pathlib import Path

import pytest
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import APIError, NotFoundError

from kalda import Admin, NewTopic, OffsetSpec, Producer, TopicPartition
from tests.integration.nats.jetstream_servers import jetstream_broker
from tests.integration.nats.raw_nats import RawClient, nats_port
from tests.integration.nats.test_jetstream import PATIENT, connected, fetched

NEXT = "$JS.API.CONSUMER.MSG.NEXT"


async def test_pull_requests_of_clients_that_are_gone_make_room(tmp_path: Path) -> None:
    """10,000 requests without an end: most are refused; when their client is gone, others get messages."""
    with jetstream_broker(tmp_path / "data") as broker:
        async with connected(broker) as (client, js):
            await js.add_stream(name="S", subjects=["s.>"])
            await js.add_consumer("S", ConsumerConfig(durable_name="c", ack_policy=AckPolicy.EXPLICIT))
            with RawClient(nats_port(broker)) as storm:
                pull = b'PUB %s.S.c storm.r 24\r\n{"batch":1000000000    }\r\n' % NEXT.encode()
                connect = b'CONNECT {"headers":true,"verbose":false}\r\nSUB storm.r 1\r\n'
                answer = storm.ask(connect, pull * 10_000)
                while answer.count(b"409 Exceeded MaxWaiting") < 10_000 - 512:
                    answer += storm.ask()
                assert 512 == (await js.consumer_info("S", "c")).num_waiting
            inbox = client.new_inbox()
            sub = await client.subscribe(inbox)
            async with asyncio.timeout(PATIENT):
                while True:
                    await client.publish(f"{NEXT}.S.c", json.dumps({"batch": 1}).encode(), reply=inbox)
                    await client.flush(timeout=PATIENT)
                    if (await js.consumer_info("S", "c")).num_waiting == 1:
                        break
            await js.publish("s.a", b"1")
            while (found := await sub.next_msg(timeout=PATIENT)).headers:
                pass
            assert b"1" == found.data


async def test_pull_requests_of_one_client_at_many_consumers_leave_room_for_others(tmp_path: Path) -> None:
    """Each consumer lets 512 wait, and nothing bounded those of all; a gone client's make room again."""

    def storm(client: RawClient, first: int) -> bytes:
        connect = b'CONNECT {"headers":true,"verbose":false}\r\nSUB storm.%d 1\r\n' % first
        pull = b"PUB %s.S.c%d storm.%d 1\r\n1\r\n"
        return client.ask(
            connect, *(pull % (NEXT.encode(), each, first) * 512 for each in range(first, first + 110))
        )

    async def waiting(number: int) -> int | None:
        found: int | None = (await js.consumer_info("S", f"c{number}")).num_waiting
        return found

    with jetstream_broker(tmp_path / "data") as broker:
        async with connected(broker) as (client, js):
            await js.add_stream(name="S", subjects=["s.>"])
            for number in range(220):
                await js.add_consumer("S", ConsumerConfig(name=f"c{number}", inactive_threshold=86_400.0))
            inbox = client.new_inbox()
            await client.subscribe(inbox)
            with RawClient(nats_port(broker)) as first:
                assert 100 < storm(first, 0).count(b"409 Exceeded MaxWaiting") < 20_000
                assert (512, 0) == (await waiting(0), await waiting(109))
                await client.publish(f"{NEXT}.S.c109", b"1", reply=inbox)
                await client.flush(timeout=PATIENT)
                assert 1 == await waiting(109)
            with RawClient(nats_port(broker)) as second:
                assert b"409 Exceeded MaxWaiting" in storm(second, 110)
                async with asyncio.timeout(PATIENT):
                    while await waiting(0):
                        # Until the end of the first client is known.
                        second.ask(b"PUB %s.S.c219 storm.110 1\r\n1\r\n" % NEXT.encode() * 1_000)
                assert 1 == await waiting(109)
        log = broker.log()
    assert "Traceback" not in log


async def test_records_deleted_by_clients_of_kafka_are_gone_from_the_stream(tmp_path: Path) -> None:
    """A consumer whose next message was deleted waited for it forever."""
    with jetstream_broker(tmp_path / "data") as broker:
        async with connected(broker) as (_, js):
            await js.add_stream(name="S", subjects=["s.>"])
            for number in range(10):
                await js.publish("s.a", b"%d" % number)
            await js.add_consumer("S", ConsumerConfig(durable_name="c", ack_policy=AckPolicy.EXPLICIT))

            def delete() -> None:
                with Admin(bootstrap_servers=broker.bootstrap) as admin:
                    admin.delete_records({TopicPartition("S", 0): 6})

            await asyncio.to_thread(delete)
            sub = await js.pull_subscribe_bind("c", "S")
            assert [b"6", b"7", b"8", b"9"] == [each.data for each in await fetched(sub, 4)]
            with pytest.raises(NotFoundError):
                await js.get_msg("S", 3)
            async with asyncio.timeout(PATIENT):
                while (state := (await js.stream_info("S")).state).first_seq != 7:
                    pass
            assert (4, 10) == (state.messages, state.last_seq)


async def test_odd_records_of_clients_of_kafka_are_messages(tmp_path: Path) -> None:
    """Times beyond what clients of NATS can read, no key, no value, and names of headers that end lines."""
    with jetstream_broker(tmp_path / "data") as broker:
        async with connected(broker) as (_, js):
            await js.add_stream(name="S", subjects=["s.>"], allow_direct=True)

            def write() -> None:
                with Producer(bootstrap_servers=broker.bootstrap) as producer:
                    producer.send("S", b"late", key=b"s.a", timestamp_ms=2**62)
                    producer.send("S", None, key=b"s.b")
                    producer.send("S", b"no key")
                    producer.send("S", b"odd key", key=b"s.\xff\xfe\r\n")
                    producer.send("S", b"text", key=b"s.\xff")
                    producer.send(
                        "S", b"odd", key=b"s.c", headers=[("a\r\nb: c", b"1"), ("n", None), ("", b"")]
                    )
                    producer.send("S", bytes(900_000), key=b"s.d", headers=[("Nats-Msg-Id", bytes(90_000))])
                    producer.flush()

            await asyncio.to_thread(write)
            await js.add_consumer("S", ConsumerConfig(durable_name="c", ack_policy=AckPolicy.EXPLICIT))
            sub = await js.pull_subscribe_bind("c", "S")
            messages = await fetched(sub, 7)
            assert ["s.a", "s.b", "s.S", "s.S", "s.S", "s.c", "s.d"] == [each.subject for each in messages]
            assert [b"late", b"", b"no key", b"odd key", b"text", b"odd", bytes(900_000)] == [
                each.data for each in messages
            ]
            assert {"n": ""} == messages[5].headers
            assert 2262 == messages[0].metadata.timestamp.year
            for direct in (False, True):
                assert b"late" == (await js.get_msg("S", 1, direct=direct)).data
            info = await js.stream_info("S")
            assert (7, 7) == (info.state.messages, info.state.last_seq)
            assert 8 == (await js.publish("s.e", b"next")).seq
            await read_last(js)
        log = broker.log()
    assert "Traceback" not in log
    assert " ERROR " not in log


async def read_last(js: JetStreamContext) -> None:
    """Read the last message of each subject."""
    config = ConsumerConfig(
        durable_name="last",
        deliver_policy=DeliverPolicy.LAST_PER_SUBJECT,
        filter_subject="s.>",
        ack_policy=AckPolicy.EXPLICIT,
    )
    await js.add_consumer("S", config)
    sub = await js.pull_subscribe_bind("last", "S")
    assert [1, 2, 5, 6, 7, 8] == [each.metadata.sequence.stream for each in await fetched(sub, 6)]


async def test_a_topic_that_is_made_again_is_not_the_stream(tmp_path: Path) -> None:
    with jetstream_broker(tmp_path / "data") as broker:
        async with connected(broker) as (_, js):
            await js.add_stream(name="S", subjects=["s.>"])
            await js.add_consumer("S", ConsumerConfig(durable_name="c", ack_policy=AckPolicy.EXPLICIT))
            await js.publish("s.a", b"old")

            def make_again() -> None:
                with Admin(bootstrap_servers=broker.bootstrap) as admin:
                    admin.delete_topics(["S"])
                    admin.create_topics([NewTopic("S", 1, 1)])
                with Producer(bootstrap_servers=broker.bootstrap) as producer:
                    producer.send("S", b"of others", key=b"s.a")
                    producer.flush()

            await asyncio.to_thread(make_again)
            for attempt in (
                lambda: js.publish("s.a", b"new"),
                lambda: js.stream_info("S"),
                lambda: js.get_msg("S", 1),
                lambda: js.consumer_info("S", "c"),
            ):
                with pytest.raises(APIError, match="10008"):
                    await attempt()
            assert await js.delete_stream("S")

            def read() -> int:
                with Admin(bootstrap_servers=broker.bootstrap) as admin:
                    return admin.list_offsets({TopicPartition("S", 0): OffsetSpec.latest()})[
                        TopicPartition("S", 0)
                    ].offset

            assert 1 == await asyncio.to_thread(read)
            with pytest.raises(APIError, match="10058"):
                await js.add_stream(name="S", subjects=["s.>"])


async def test_transactions_of_clients_of_kafka_are_messages_once_they_are_committed(tmp_path: Path) -> None:
    """What was aborted was delivered, and removed the value that its subject had."""
    transaction_log = {
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
    }
    with jetstream_broker(tmp_path / "data", **transaction_log) as broker:
        async with connected(broker) as (_, js):
            await js.add_stream(name="S", subjects=["s.>"], max_msgs_per_subject=1)
            await js.add_consumer("S", ConsumerConfig(durable_name="c", ack_policy=AckPolicy.EXPLICIT))
            await js.publish("s.k", b"old")
            producer = Producer(bootstrap_servers=broker.bootstrap, transactional_id="t")

            def write(value: bytes) -> None:
                producer.begin_transaction()
                producer.send("S", value, key=b"s.k").result(PATIENT)

            with producer:
                await asyncio.to_thread(producer.init_transactions)
                await asyncio.to_thread(write, b"aborted")
                assert 3 == (await js.publish("s.later", b"later")).seq
                assert b"old" == (await js.get_last_msg("S", "s.k")).data
                assert b"later" == (await js.get_last_msg("S", "s.later")).data
                sub = await js.pull_subscribe_bind("c", "S")
                assert [b"old"] == [each.data for each in await sub.fetch(5, timeout=1)]
                await asyncio.to_thread(producer.abort_transaction)
                assert [b"later"] == [each.data for each in await fetched(sub, 1)]
                assert b"old" == (await js.get_last_msg("S", "s.k")).data
                await asyncio.to_thread(write, b"new")
                await asyncio.to_thread(producer.commit_transaction)
                assert [b"new"] == [each.data for each in await fetched(sub, 1)]
                assert b"new" == (await js.get_last_msg("S", "s.k")).data
            state = (await js.stream_info("S")).state
        broker.kill()
        broker.start()
        async with connected(broker) as (_, js):
            assert b"new" == (await js.get_last_msg("S", "s.k")).data
            again = (await js.stream_info("S")).state
            assert (2, state.last_seq) == (again.messages, again.last_seq)


async def test_a_message_is_stored_once_whenever_the_broker_is_killed(tmp_path: Path) -> None:
    """The client publishes with ids until the broker is gone, and again what it has no answer for."""
    count = 300
    with jetstream_broker(tmp_path / "data") as broker:
        async with connected(broker) as (_, js):
            await js.add_stream(name="S", subjects=["s.>"])
        for turn in range(3):
            async with connected(broker) as (_, js):
                answers = [
                    await js.publish_async("s.a", b"%d" % number, headers={"Nats-Msg-Id": f"id{number}"})
                    for number in range(count * turn // 3, count)
                ]
                await asyncio.wait(answers, timeout=PATIENT, return_when=asyncio.FIRST_COMPLETED)
                broker.kill()
                for each in answers:
                    each.cancel()
            broker.start()
        async with connected(broker) as (_, js):
            for number in range(count):
                await js.publish("s.a", b"%d" % number, headers={"Nats-Msg-Id": f"id{number}"})
            sub = await js.pull_subscribe("s.>", "c", stream="S")
            found = sorted(int(each.data) for each in await fetched(sub, count))
            assert list(range(count)) == found
            assert count == (await js.stream_info("S")).state.messages
