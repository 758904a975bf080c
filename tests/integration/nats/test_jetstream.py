"""JetStream on a broker with NATS's own client: what outlives a kill, Kafka's clients beside it, and ACLs."""

import asyncio
import json
import re
import urllib.request
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, DeliverPolicy
from nats.js.errors import APIError, KeyWrongLastSequenceError, NotFoundError

from kalda import Admin, Consumer, Producer
from kalda.clients.admin.acls import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from kalda.testing import KaldaProcess
from kalda.testing.ports import free_ports
from tests.integration.nats.jetstream_servers import jetstream_broker
from tests.integration.nats.raw_nats import nats_port

Content = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]

PATIENT = 60


@asynccontextmanager
async def connected(broker: KaldaProcess) -> AsyncIterator[tuple[Client, JetStreamContext]]:
    url = f"nats://127.0.0.1:{nats_port(broker)}"
    client = await nats.connect(url, allow_reconnect=False, connect_timeout=PATIENT)
    try:
        yield client, client.jetstream(timeout=PATIENT)
    finally:
        await client.close()


async def fetched(sub: JetStreamContext.PullSubscription, count: int) -> list[Msg]:
    found: list[Msg] = []
    while len(found) < count:
        found += await sub.fetch(count - len(found), timeout=PATIENT)
    return found


async def test_streams_and_consumers_outlive_a_kill(tmp_path: Path) -> None:
    """Kills the broker without warning: what was acknowledged stays so, the rest comes again, counted."""
    with jetstream_broker(tmp_path / "data") as broker:
        async with connected(broker) as (_, js):
            await js.add_stream(name="ORDERS", subjects=["orders.*"])
            for number in range(6):
                ack = await js.publish("orders.eu", b"%d" % number, headers={"Nats-Msg-Id": f"id{number}"})
                assert ("ORDERS", number + 1) == (ack.stream, ack.seq)
            sub = await js.pull_subscribe("orders.eu", "worker")
            messages = await fetched(sub, 4)
            await messages[0].ack_sync(timeout=PATIENT)
            await messages[2].ack_sync(timeout=PATIENT)
            values = await js.create_key_value(bucket="prices")
            await values.put("box", b"4")
            await values.put("box", b"5")
            await js.purge_stream("ORDERS", seq=2)
        broker.kill()
        broker.start()
        async with connected(broker) as (_, js):
            again = await js.publish("orders.eu", b"5", headers={"Nats-Msg-Id": "id5"})
            assert (6, True) == (again.seq, again.duplicate)
            state = (await js.stream_info("ORDERS")).state
            assert (5, 2, 6) == (state.messages, state.first_seq, state.last_seq)
            sub = await js.pull_subscribe_bind("worker", "ORDERS")
            messages = await fetched(sub, 4)
            found = sorted((each.metadata.sequence.stream, each.metadata.num_delivered) for each in messages)
            assert [(2, 2), (4, 2), (5, 1), (6, 1)] == found
            for each in messages:
                await each.ack_sync(timeout=PATIENT)
            info = await js.consumer_info("ORDERS", "worker")
            assert (0, 0) == (info.num_ack_pending, info.num_pending)
            values = await js.key_value("prices")
            entry = await values.get("box")
            assert (b"5", 2) == (entry.value, entry.revision)
            with pytest.raises(KeyWrongLastSequenceError):
                await values.update("box", b"6", last=1)


@pytest.mark.parametrize("request_name", ["CONSUMER.PAUSE.S.c", "META.LEADER", "STREAM.INFO"])
async def test_a_request_that_is_not_served_is_answered(tmp_path: Path, request_name: str) -> None:
    with jetstream_broker(tmp_path / "data") as broker:
        async with connected(broker) as (client, _):
            answer = await client.request(f"$JS.API.{request_name}", b"{}", timeout=PATIENT)
    assert {"code": 400, "err_code": 10003, "description": "bad request"} == json.loads(answer.data)["error"]


async def test_kafka_clients_and_streams_share_records(tmp_path: Path) -> None:
    with jetstream_broker(tmp_path / "data") as broker:
        async with connected(broker) as (_, js):
            await js.add_stream(name="EVENTS", subjects=["events.>"])
            await js.publish("events.a", b"from NATS", headers={"Trace": "t1"})

            def exchange() -> list[Content]:
                with Producer(bootstrap_servers=broker.bootstrap) as producer:
                    producer.send("EVENTS", b"from Kafka", key=b"events.b", headers=[("N", b"1")])
                    producer.send("EVENTS", b"with another key", key=b"no subject")
                    producer.flush()
                found: list[Content] = []
                with Consumer(
                    "EVENTS", bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest"
                ) as consumer:
                    while len(found) < 3:
                        records = consumer.poll(1.0)
                        found += [(each.key, each.value, list(each.headers)) for each in records]
                return found

            records = await asyncio.to_thread(exchange)
            assert (b"events.a", b"from NATS", [("Trace", b"t1")]) == records[0]
            sub = await js.pull_subscribe("events.>", "reader")
            messages = await fetched(sub, 3)
            assert [b"from NATS", b"from Kafka", b"with another key"] == [each.data for each in messages]
            assert ["events.a", "events.b", "events.EVENTS"] == [each.subject for each in messages]
            assert [{"Trace": "t1"}, {"N": "1"}, {"Kalda-Key": "no subject"}] == [
                each.headers for each in messages
            ]
            last = await js.publish("events.c", b"later")
            assert 4 == last.seq


async def test_rights_on_the_topic_decide(tmp_path: Path) -> None:
    acls = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with jetstream_broker(tmp_path / "data", **acls) as broker:
        async with connected(broker) as (_, js):
            await js.add_stream(name="SECRET", subjects=["secret"])
            await js.add_stream(name="OPEN", subjects=["open"])
            await js.publish("secret", b"1")

            def restrict() -> None:
                with Admin(bootstrap_servers=broker.bootstrap) as admin:
                    admin.create_acls(
                        [
                            AclBinding(
                                ResourcePattern(ResourceType.TOPIC, "SECRET", PatternType.LITERAL),
                                AccessControlEntry("User:ann", "*", AclOperation.ALL, PermissionType.ALLOW),
                            )
                        ]
                    )

            await asyncio.to_thread(restrict)
            async with asyncio.timeout(PATIENT):
                while "SECRET" in [each.config.name for each in await js.streams_info()]:
                    pass
            assert 1 == (await js.publish("open", b"1")).seq
            for attempt in (
                lambda: js.publish("secret", b"2"),
                lambda: js.stream_info("SECRET"),
                lambda: js.get_msg("SECRET", 1),
                lambda: js.purge_stream("SECRET"),
                lambda: js.delete_stream("SECRET"),
                lambda: js.add_consumer("SECRET", ConsumerConfig(durable_name="thief")),
                lambda: js.add_consumer("SECRET", ConsumerConfig(deliver_subject="mine")),
            ):
                with pytest.raises(APIError, match="10039"):
                    await attempt()


async def test_the_broker_lends_no_client_its_own_rights(tmp_path: Path) -> None:
    """A reply subject or a consumer's may not carry messages to where their client may not publish."""
    acls = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with jetstream_broker(tmp_path / "data", **acls) as broker:
        async with connected(broker) as (client, js):
            await js.add_stream(name="SECRET", subjects=["secret"])
            # Eight characters as long as the prefix of the API, then a request.
            await js.add_stream(name="MINE", subjects=["PREFIX12STREAM.DELETE.SECRET"], allow_direct=True)
            await js.publish("PREFIX12STREAM.DELETE.SECRET", b"")
            await js.add_consumer("MINE", ConsumerConfig(durable_name="pull"))

            def restrict() -> None:
                with Admin(bootstrap_servers=broker.bootstrap) as admin:
                    admin.create_acls(
                        [
                            AclBinding(
                                ResourcePattern(ResourceType.TOPIC, name, PatternType.LITERAL),
                                AccessControlEntry("User:ann", "*", AclOperation.ALL, PermissionType.ALLOW),
                            )
                            for name in ("SECRET", "secret")
                        ]
                    )

            await asyncio.to_thread(restrict)
            async with asyncio.timeout(PATIENT):
                while "SECRET" in [each.config.name for each in await js.streams_info()]:
                    pass
            for reply in ("secret", "$JS.API.STREAM.DELETE.SECRET"):
                for subject, body in (
                    ("$JS.API.DIRECT.GET.MINE", b'{"seq":1}'),
                    ("$JS.API.CONSUMER.MSG.NEXT.MINE.pull", b"1"),
                    ("$JS.API.INFO", b""),
                ):
                    await client.publish(subject, body, reply=reply)
            with pytest.raises(APIError, match="10039"):
                await js.add_consumer("MINE", ConsumerConfig(deliver_subject="secret"))
            with pytest.raises(APIError, match="10039"):
                await js.add_stream(name="COPY", subjects=["secret"])
            with pytest.raises(APIError, match="10049"):
                await js.add_stream(name="__transaction_state")
            # A request is answered after those that came before it.
            await js.account_info()

            def release() -> None:
                with Admin(bootstrap_servers=broker.bootstrap) as admin:
                    admin.delete_acls([AclFilter()])

            await asyncio.to_thread(release)
            async with asyncio.timeout(PATIENT):
                while "SECRET" not in [each.config.name for each in await js.streams_info()]:
                    pass
            assert 0 == (await js.stream_info("SECRET")).state.messages


async def is_refused(attempt: Awaitable[object]) -> bool:
    try:
        await attempt
    except APIError as error:
        return error.err_code == 10039
    return False


async def test_flow_control_is_answered_by_those_who_may_read(tmp_path: Path) -> None:
    acls = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with jetstream_broker(tmp_path / "data", **acls) as broker:
        async with connected(broker) as (client, js):
            await js.add_stream(name="S", subjects=["s"])
            sub = await client.subscribe("mine")
            config = ConsumerConfig(deliver_subject="mine", flow_control=True, idle_heartbeat=0.5)
            await js.add_consumer("S", config)
            await js.publish("s", bytes(200_000))
            while not (message := await sub.next_msg(timeout=PATIENT)).reply.startswith("$JS.FC."):
                pass
            asked = message.reply

            def deny() -> None:
                with Admin(bootstrap_servers=broker.bootstrap) as admin:
                    admin.create_acls(
                        [
                            AclBinding(
                                ResourcePattern(ResourceType.TOPIC, "S", PatternType.LITERAL),
                                AccessControlEntry("User:ann", "*", AclOperation.ALL, PermissionType.ALLOW),
                            )
                        ]
                    )

            await asyncio.to_thread(deny)
            async with asyncio.timeout(PATIENT):
                while not await is_refused(js.stream_info("S")):
                    pass
            await client.publish(asked, b"")
            await client.flush(timeout=PATIENT)
            while sub.pending_msgs:
                await sub.next_msg(timeout=PATIENT)
            heartbeat = await sub.next_msg(timeout=PATIENT)
            assert asked == (heartbeat.headers or {}).get("Nats-Consumer-Stalled")


async def test_a_stream_is_no_way_around_what_is_denied_on_a_subject(tmp_path: Path) -> None:
    acls = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with jetstream_broker(tmp_path / "data", **acls) as broker:
        async with connected(broker) as (client, js):
            await js.add_stream(name="OPEN", subjects=["open.>"], allow_direct=True)
            await js.publish("open.x", b"1")
            await js.publish("open.y", b"2")
            everything = ConsumerConfig(durable_name="everything")
            await js.add_consumer("OPEN", everything)

            def deny() -> None:
                with Admin(bootstrap_servers=broker.bootstrap) as admin:
                    admin.create_acls(
                        [
                            AclBinding(
                                ResourcePattern(ResourceType.TOPIC, "open.x", PatternType.LITERAL),
                                AccessControlEntry(
                                    "User:ANONYMOUS", "*", AclOperation.READ, PermissionType.DENY
                                ),
                            )
                        ]
                    )

            await asyncio.to_thread(deny)
            async with asyncio.timeout(PATIENT):
                while not await is_refused(js.get_msg("OPEN", 1)):
                    pass
            for attempt in (
                lambda: js.get_last_msg("OPEN", "open.x"),
                lambda: js.add_consumer("OPEN", ConsumerConfig(durable_name="more")),
                lambda: js.add_consumer("OPEN", ConsumerConfig(deliver_subject="mine")),
                lambda: js.add_stream(name="COPY", subjects=["open.*"]),
            ):
                with pytest.raises(APIError, match="10039"):
                    await attempt()
            for subject, body in (
                ("API.CONSUMER.MSG.NEXT.OPEN.everything", b"1"),
                ("ACK.OPEN.everything.1.1.1.1.0", b"+NXT"),
                ("API.DIRECT.GET.OPEN", b'{"seq":1}'),
            ):
                answer = await client.request(f"$JS.{subject}", body, timeout=PATIENT)
                assert (b"", "403") == (answer.data, (answer.headers or {}).get("Status"))
            assert b"2" == (await js.get_msg("OPEN", 2)).data
            assert b"2" == (await js.get_last_msg("OPEN", "open.y", direct=True)).data
            sub = await js.pull_subscribe("open.y", "permitted")
            assert [b"2"] == [each.data for each in await fetched(sub, 1)]


async def test_a_push_consumer_of_many_messages_keeps_the_order(tmp_path: Path) -> None:
    """10 MB go to an ordered consumer, whose client answers flow control."""
    count = 2_000
    with jetstream_broker(tmp_path / "data") as broker:
        async with connected(broker) as (_, js):
            await js.add_stream(name="LARGE", subjects=["large"])
            for number in range(count):
                await js.publish_async("large", b"%06d" % number + bytes(5_000))
            async with asyncio.timeout(PATIENT):
                await js.publish_async_completed()
            sub = await js.subscribe(
                "large",
                ordered_consumer=True,
                deliver_policy=DeliverPolicy.ALL,
                idle_heartbeat=5.0,
                pending_bytes_limit=1 << 30,
            )
            found = [int((await sub.next_msg(timeout=PATIENT)).data[:6]) for _ in range(count)]
            assert list(range(count)) == found


async def test_metrics_say_what_streams_and_consumers_do(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with jetstream_broker(tmp_path / "data", **{"metrics.port": str(port)}) as broker:
        async with connected(broker) as (_, js):
            await js.add_stream(name="ORDERS", subjects=["orders"])
            for number in (0, 1, 1):
                await js.publish("orders", b"%d" % number, headers={"Nats-Msg-Id": f"id{number}"})
            sub = await js.pull_subscribe("orders", "worker")
            first, _ = await fetched(sub, 2)
            await first.nak()
            (again,) = await fetched(sub, 1)
            assert 2 == again.metadata.num_delivered
            with pytest.raises(NotFoundError):
                await js.stream_info("NONE")

            def scraped() -> dict[str, float]:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENT) as response:
                    text = response.read().decode()
                found = re.findall(r"^kalda_nats_jetstream_(\w+) (\S+)$", text, re.MULTILINE)
                return {name: float(value) for name, value in found}

            found = await asyncio.to_thread(scraped)
    expected = {
        "streams": 1,
        "messages": 2,
        "consumers": 1,
        "ack_pending": 2,
        "unread": 0,
        "pull_requests": 0,
        "carried_waiting": 0,
        # The client asks first whether its consumer exists.
        "api_errors_total": 2,
        "stored_messages_total": 2,
        "duplicates_total": 1,
        "delivered_messages_total": 3,
        "redelivered_messages_total": 1,
        "carried_total": 0,
        "carry_failures_total": 0,
    }
    assert expected == {name: found[name] for name in expected}
    assert found["bytes"] > 2
    assert found["api_requests_total"] > 2


async def test_nobody_answers_a_pull_from_a_consumer_that_is_not_there(tmp_path: Path) -> None:
    """nats-server does so from 2.10 on; before, it is silent."""
    with jetstream_broker(tmp_path / "data") as broker:
        async with connected(broker) as (client, js):
            for stream in (None, "S"):
                if stream is not None:
                    await js.add_stream(name=stream, subjects=["s"])
                with pytest.raises(NoRespondersError):
                    await client.request("$JS.API.CONSUMER.MSG.NEXT.S.c", b"", timeout=PATIENT)


async def test_a_message_expects_another_one_whose_successor_is_deleted(tmp_path: Path) -> None:
    """The last message of a subject is looked for when it is needed."""
    with jetstream_broker(tmp_path / "data") as broker:
        async with connected(broker) as (_, js):
            await js.add_stream(name="S", subjects=["s.>"])
            for subject in ("s.a", "s.b", "s.a", "s.a"):
                await js.publish(subject, b"")
            for sequence in (3, 4):
                await js._api_request(
                    "$JS.API.STREAM.MSG.DELETE.S",
                    json.dumps({"seq": sequence, "no_erase": True}).encode(),
                    timeout=PATIENT,
                )
            expects = {"Nats-Expected-Last-Subject-Sequence": "4"}
            with pytest.raises(APIError, match="wrong last sequence: 1"):
                await js.publish("s.a", b"", headers=expects)
            expects = {"Nats-Expected-Last-Subject-Sequence": "1"}
            assert 5 == (await js.publish("s.a", b"", headers=expects)).seq
            assert 5 == (await js.get_last_msg("S", "s.a")).seq


async def test_metadata_and_several_filters_outlive_a_kill(tmp_path: Path) -> None:
    """What clients of nats-server 2.10 send: both were dropped or refused by earlier releases."""
    with jetstream_broker(tmp_path / "data") as broker:
        async with connected(broker) as (_, js):
            await js.add_stream(name="S", subjects=["s.>"], metadata={"team": "a"})
            filters = ["s.a.*", "s.b"]
            config = ConsumerConfig(durable_name="c", filter_subjects=filters, metadata={"k": "v"})
            await js.add_consumer("S", config)
            for number, subject in enumerate(("s.a.1", "s.b", "s.c", "s.b.1", "s.a.2")):
                await js.publish(subject, b"%d" % number)
            info = await js.stream_info("S")
            info.config.metadata = {"team": "b"}
            assert {"team": "b"} == (await js.update_stream(info.config)).config.metadata
        broker.kill()
        broker.start()
        async with connected(broker) as (_, js):
            assert {"team": "b"} == (await js.stream_info("S")).config.metadata
            async with asyncio.timeout(PATIENT):
                while True:
                    try:
                        found = await js.consumer_info("S", "c")
                        break
                    except APIError:
                        pass
            assert (filters, {"k": "v"}, 3) == (
                found.config.filter_subjects,
                found.config.metadata,
                found.num_pending,
            )
            sub = await js.pull_subscribe_bind("c", "S")
            assert [b"0", b"1", b"4"] == [each.data for each in await fetched(sub, 3)]
