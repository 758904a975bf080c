"""A walk through JetStream with NATS's own client gets the same answers from nats-server and from Kalda.

Each check has streams of its own. Times, random names and what nats-server 2.9 does not know are left out.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, DiscardPolicy
from nats.js.errors import Error as JetStreamError

from tests.integration.nats.jetstream_servers import jetstream_broker, nats_server_port
from tests.integration.nats.raw_nats import nats_port

PATIENT = 60
Check = Callable[["Walk"], Awaitable[object]]

CHECKS: dict[str, Check] = {}


def check(function: Check) -> Check:
    CHECKS[function.__name__] = function
    return function


class Walk:
    """One check's client."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.js: JetStreamContext = client.jetstream(timeout=PATIENT)
        self.stream = name.upper()
        self.subject = name

    async def add(self, **values: Any) -> None:
        await self.js.add_stream(name=self.stream, subjects=[f"{self.subject}.>"], **values)

    async def fill(self, *tokens: str) -> None:
        for number, token in enumerate(tokens):
            await self.js.publish(f"{self.subject}.{token}", b"%d" % number)

    async def api(self, kind: str, body: object = None, *, suffix: str = "") -> dict[str, Any]:
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        subject = f"$JS.API.{kind}.{self.stream}{suffix}"
        answer = await self.client.request(subject, data, timeout=PATIENT)
        found: dict[str, Any] = without_times(json.loads(answer.data))
        return found

    async def raises(self, attempt: Awaitable[object]) -> object:
        try:
            return ("no error", await attempt)
        except JetStreamError as error:
            code = getattr(error, "err_code", None)
            return type(error).__name__, code, getattr(error, "description", None)

    async def pull(self, consumer: str, body: object, count: int) -> list[object]:
        """Send a raw pull request; return the first messages that come."""
        inbox = self.client.new_inbox()
        sub = await self.client.subscribe(inbox)
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{consumer}"
        await self.client.publish(subject, json.dumps(body).encode(), reply=inbox)
        found = [message_facts(await sub.next_msg(timeout=PATIENT)) for _ in range(count)]
        await sub.unsubscribe()
        return found

    async def consumer(self, **values: Any) -> Any:
        config = ConsumerConfig(**{"durable_name": "c", "ack_policy": AckPolicy.EXPLICIT} | values)
        return await self.js.add_consumer(self.stream, config)

    async def fetch(self, count: int, consumer: str = "c") -> list[Msg]:
        sub = await self.js.pull_subscribe_bind(consumer, self.stream)
        found: list[Msg] = []
        while len(found) < count:
            found += await sub.fetch(count - len(found), timeout=PATIENT)
        await sub.unsubscribe()
        return found

    async def counts(self, consumer: str = "c") -> object:
        info = await self.js.consumer_info(self.stream, consumer)
        assert info.delivered is not None
        assert info.ack_floor is not None
        return (
            (info.delivered.consumer_seq, info.delivered.stream_seq),
            (info.ack_floor.consumer_seq, info.ack_floor.stream_seq),
            info.num_ack_pending,
            info.num_redelivered,
            info.num_pending,
        )

    async def state(self) -> object:
        state = (await self.js.stream_info(self.stream)).state
        return state.messages, state.bytes, state.first_seq, state.last_seq, state.num_deleted


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        left_out = ("created", "time", "first_ts", "last_ts", "last_active", "api", "name")
        return {key: without_times(each) for key, each in value.items() if key not in left_out}
    if isinstance(value, list):
        return [without_times(each) for each in value]
    return value


def message_facts(message: Msg) -> object:
    """Return what both servers agree on."""
    reply = message.reply.split(".")
    del reply[7:8]
    headers = {str(getattr(key, "value", key)): each for key, each in (message.headers or {}).items()}
    subject = "inbox" if message.subject.startswith("_INBOX") else message.subject
    return subject, message.data, headers, reply


def delivered(messages: list[Msg]) -> list[object]:
    found: list[object] = []
    for each in messages:
        facts = each.metadata
        found.append(
            (each.subject, each.data, facts.sequence.stream, facts.sequence.consumer, facts.num_delivered)
        )
    return found


# Streams.


@check
async def create(walk: Walk) -> object:
    return await walk.api("STREAM.CREATE", {"name": walk.stream, "subjects": ["create.>"], "max_msgs": 5})


@check
async def create_twice(walk: Walk) -> object:
    config = {"name": walk.stream, "subjects": ["create_twice"]}
    await walk.api("STREAM.CREATE", config)
    return [
        await walk.api("STREAM.CREATE", config),
        await walk.api("STREAM.CREATE", config | {"max_msgs": 4}),
    ]


@check
async def create_with_defaults(walk: Walk) -> object:
    return await walk.api("STREAM.CREATE", {"name": walk.stream})


@check
async def create_overlapping(walk: Walk) -> object:
    await walk.add()
    other = {"name": "OVERLAP2", "subjects": ["create_overlapping.*.x"]}
    answer = await walk.client.request("$JS.API.STREAM.CREATE.OVERLAP2", json.dumps(other).encode(), PATIENT)
    return json.loads(answer.data)


REFUSED: list[object] = [
    b"",
    b"{",
    b"[]",
    {"name": "OTHER"},
    {"retention": "x"},
    {"storage": 5},
    {"max_msgs": "5"},
    {"subjects": "x"},
    {"max_age": 5},
    {"subjects": ["x", "x"]},
    {"subjects": ["x.>", "x.y"]},
    {"subjects": ["x..y"]},
    {"subjects": ["$JS.API.x"]},
    {"num_replicas": 3},
    {"num_replicas": 9},
    {"discard_new_per_subject": True},
    {"duplicate_window": 5},
    {"max_age": 10**9, "duplicate_window": 2 * 10**9},
    {"deny_purge": True, "allow_rollup_hdrs": True},
    {"description": "x" * 5000},
]


@check
async def refused_streams(walk: Walk) -> object:
    found = []
    for body in REFUSED:
        sent = {"name": walk.stream} | body if isinstance(body, dict) else body
        found.append(await walk.api("STREAM.CREATE", sent))
    return found


@check
async def update(walk: Walk) -> object:
    await walk.add()
    await walk.fill("a", "b", "c", "d")
    base = {"name": walk.stream, "subjects": ["update.>", "more"]}
    return [
        await walk.api("STREAM.UPDATE", base | {"max_msgs": 2}),
        await walk.state(),
        await walk.api("STREAM.UPDATE", base | {"storage": "memory"}),
        await walk.api("STREAM.UPDATE", base | {"retention": "interest"}),
        await walk.api("STREAM.UPDATE", base | {"max_consumers": 3}),
        (await walk.js.publish("more", b"")).seq,
    ]


@check
async def missing_stream(walk: Walk) -> object:
    kinds = ("STREAM.INFO", "STREAM.PURGE", "STREAM.DELETE", "CONSUMER.NAMES", "CONSUMER.LIST")
    return [
        *[await walk.api(kind) for kind in kinds],
        await walk.api("STREAM.UPDATE", {"name": walk.stream}),
        await walk.api("STREAM.MSG.GET", {"seq": 1}),
        await walk.api("CONSUMER.INFO", suffix=".c"),
        await walk.raises(walk.js.publish("missing_stream", b"")),
    ]


@check
async def info(walk: Walk) -> object:
    await walk.add()
    await walk.fill("a", "b", "a")
    return [
        await walk.api("STREAM.INFO"),
        await walk.api("STREAM.INFO", {"subjects_filter": ">"}),
        await walk.api("STREAM.INFO", {"subjects_filter": "info.a"}),
        await walk.api("STREAM.INFO", {"subjects_filter": "other"}),
    ]


@check
async def names(walk: Walk) -> object:
    await walk.add()
    found = []
    for body in (
        {"subject": "names.x"},
        {"subject": "names.>"},
        {"subject": "names.x", "offset": 1},
        {"subject": "no"},
    ):
        answer = await walk.client.request("$JS.API.STREAM.NAMES", json.dumps(body).encode(), PATIENT)
        found.append(json.loads(answer.data))
    return found


@check
async def delete(walk: Walk) -> object:
    await walk.add()
    return [
        await walk.api("STREAM.DELETE", b"x"),
        await walk.api("STREAM.DELETE"),
        await walk.api("STREAM.INFO"),
    ]


@check
async def delete_and_create(walk: Walk) -> object:
    await walk.add()
    await walk.fill("a")
    await walk.js.delete_stream(walk.stream)
    await walk.add()
    await walk.fill("b")
    return await walk.state()


@check
async def purge(walk: Walk) -> object:
    await walk.add()
    await walk.fill(*"abcabcabc")
    return [
        await walk.api("STREAM.PURGE", {"filter": "purge.a", "keep": 1}),
        await walk.state(),
        await walk.api("STREAM.PURGE", {"seq": 4}),
        await walk.state(),
        await walk.api("STREAM.PURGE", {"seq": 4, "keep": 4}),
        await walk.api("STREAM.PURGE", {"filter": "purge.b"}),
        await walk.state(),
        await walk.api("STREAM.PURGE"),
        await walk.state(),
        (await walk.js.publish("purge.z", b"")).seq,
        await walk.state(),
    ]


@check
async def purge_denied(walk: Walk) -> object:
    await walk.add(deny_purge=True)
    return await walk.api("STREAM.PURGE")


# Messages.


@check
async def get(walk: Walk) -> object:
    await walk.add()
    await walk.fill(*"abab")
    bodies: list[object] = [
        {"seq": 1},
        {"seq": 9},
        {"last_by_subj": "get.a"},
        {"last_by_subj": "get.*"},
        {"last_by_subj": "other"},
        {"seq": 2, "next_by_subj": "get.a"},
        {"seq": 4, "next_by_subj": "get.a"},
        {"next_by_subj": "get.b"},
        {},
        {"seq": 1, "last_by_subj": "get.a"},
        b"{",
    ]
    return [await walk.api("STREAM.MSG.GET", body) for body in bodies]


@check
async def get_headers(walk: Walk) -> object:
    await walk.add()
    await walk.js.publish("get_headers.a", b"x", headers={"One": "1", "two-Three": "a b"})
    return await walk.api("STREAM.MSG.GET", {"seq": 1})


@check
async def direct_get(walk: Walk) -> object:
    await walk.add(allow_direct=True)
    await walk.fill(*"ab")
    await walk.js.publish("direct_get.c", b"x", headers={"One": "1"})
    found = []
    for suffix, body in (
        ("", b'{"seq":1}'),
        ("", b'{"seq":9}'),
        ("", b'{"last_by_subj":"direct_get.b"}'),
        ("", b'{"seq":1,"next_by_subj":"direct_get.c"}'),
        ("", b"{"),
        ("", b"{}"),
        (".direct_get.c", b""),
        (".other", b""),
    ):
        answer = await walk.client.request(f"$JS.API.DIRECT.GET.{walk.stream}{suffix}", body, PATIENT)
        headers = dict(answer.headers or {})
        headers.pop("Nats-Time-Stamp", None)
        found.append((headers, answer.data))
    return found


@check
async def publish(walk: Walk) -> object:
    await walk.add()
    found = []
    for headers in (None, {"Nats-Msg-Id": "1"}, {"Nats-Msg-Id": "1"}, {"Nats-Msg-Id": "2"}):
        answer = await walk.client.request("publish.a", b"x", PATIENT, headers=headers)
        found.append(answer.data)
    return found


@check
async def expectations(walk: Walk) -> object:
    await walk.add()
    await walk.fill(*"ab")
    await walk.js.publish("expectations.a", b"", headers={"Nats-Msg-Id": "id3"})
    found = []
    for name, value in (
        ("Nats-Expected-Stream", "OTHER"),
        ("Nats-Expected-Stream", walk.stream),
        ("Nats-Expected-Last-Sequence", "3"),
        ("Nats-Expected-Last-Sequence", "4"),
        ("Nats-Expected-Last-Sequence", "5"),
        ("Nats-Expected-Last-Subject-Sequence", "6"),
        ("Nats-Expected-Last-Subject-Sequence", "9"),
        ("Nats-Expected-Last-Msg-Id", "id3"),
        ("Nats-Expected-Last-Msg-Id", "id4"),
        ("Nats-Rollup", "sub"),
    ):
        answer = await walk.client.request("expectations.a", b"", PATIENT, headers={name: value})
        found.append((name, value, json.loads(answer.data)))
    return found


@check
async def rollup(walk: Walk) -> object:
    await walk.add(allow_rollup_hdrs=True)
    await walk.fill(*"abab")
    await walk.js.publish("rollup.a", b"", headers={"Nats-Rollup": "sub"})
    first = await walk.state()
    await walk.js.publish("rollup.z", b"", headers={"Nats-Rollup": "all"})
    return first, await walk.state()


@check
async def limits(walk: Walk) -> object:
    await walk.add(max_msgs=3, max_msg_size=10)
    await walk.fill(*"abcde")
    return [await walk.state(), await walk.raises(walk.js.publish("limits.a", b"x" * 11))]


@check
async def bytes_limit(walk: Walk) -> object:
    await walk.add(max_bytes=200)
    await walk.fill(*"abcdefgh")
    return await walk.state()


@check
async def subject_limit(walk: Walk) -> object:
    await walk.add(max_msgs_per_subject=2)
    await walk.fill(*"aaabab")
    return [await walk.state(), await walk.api("STREAM.INFO", {"subjects_filter": ">"})]


@check
async def discard_new(walk: Walk) -> object:
    await walk.add(max_msgs=2, discard=DiscardPolicy.NEW)
    await walk.fill(*"ab")
    return [await walk.raises(walk.js.publish("discard_new.c", b"")), await walk.state()]


@check
async def no_ack(walk: Walk) -> object:
    await walk.add(no_ack=True)
    await walk.client.publish("no_ack.a", b"x")
    async with asyncio.timeout(PATIENT):
        while (await walk.js.stream_info(walk.stream)).state.messages < 1:
            pass
    return await walk.state()


# Consumers.

CONSUMERS: list[dict[str, object]] = [
    {},
    {"ack_policy": "none"},
    {"ack_policy": "all", "max_waiting": 3},
    {"max_deliver": -5},
    {"backoff": [10**9, 2 * 10**9]},
    {"backoff": [10**9, 2 * 10**9], "max_deliver": 3},
    {"deliver_policy": "foo"},
    {"deliver_policy": "last"},
    {"deliver_policy": "new"},
    {"deliver_policy": "by_start_sequence"},
    {"deliver_policy": "by_start_sequence", "opt_start_seq": 2},
    {"deliver_policy": "by_start_sequence", "opt_start_seq": 99},
    {"deliver_policy": "all", "opt_start_seq": 4},
    {"deliver_policy": "by_start_time"},
    {"deliver_policy": "by_start_time", "opt_start_time": "2020-01-01T00:00:00Z"},
    {"deliver_policy": "last_per_subject"},
    {"deliver_policy": "last_per_subject", "filter_subject": "configs.*"},
    {"filter_subject": "zz"},
    {"filter_subject": "configs.a"},
    {"idle_heartbeat": 10**9},
    {"flow_control": True},
    {"deliver_subject": "push.x", "max_waiting": 5},
    {"deliver_subject": "configs.x"},
    {"deliver_subject": "push.*"},
    {"deliver_subject": "push.q", "flow_control": True},
    {"deliver_subject": "push.q", "idle_heartbeat": 10**7},
    {"deliver_subject": "push.q", "idle_heartbeat": 10**9, "flow_control": True, "deliver_group": "g"},
    {"rate_limit_bps": 5},
    {"headers_only": True},
    {"max_ack_pending": 5},
    {"ack_wait": 5},
    {"inactive_threshold": 10**12},
    {"max_batch": 2, "max_expires": 10**9, "max_bytes": 4},
    {"description": "x" * 5000},
    {"description": "packs boxes"},
]


@check
async def configs(walk: Walk) -> object:
    await walk.add()
    await walk.fill(*"aabab")
    found = []
    for values in CONSUMERS:
        config = {"durable_name": "c", "ack_policy": "explicit"} | values
        body = {"stream_name": walk.stream, "config": config}
        found.append((values, await walk.api("CONSUMER.DURABLE.CREATE", body, suffix=".c")))
        await walk.api("CONSUMER.DELETE", suffix=".c")
    return found


@check
async def consumer_names(walk: Walk) -> object:
    await walk.add()
    for name in ("c1", "c2", "c3"):
        await walk.consumer(durable_name=name)
    return [
        await walk.api("CONSUMER.NAMES"),
        await walk.api("CONSUMER.NAMES", {"offset": 1}),
        await walk.api("CONSUMER.LIST", {"offset": 2}),
        await walk.api("CONSUMER.INFO", suffix=".c2"),
        await walk.api("CONSUMER.INFO", suffix=".other"),
        await walk.api("CONSUMER.DELETE", suffix=".c2"),
        await walk.api("CONSUMER.DELETE", suffix=".c2"),
        await walk.api("CONSUMER.NAMES"),
    ]


@check
async def named_by_the_subject(walk: Walk) -> object:
    """NATS's client in Go names ordered consumers only there."""
    await walk.add()
    config = {"ack_policy": "none", "filter_subject": f"{walk.subject}.a", "deliver_subject": "_INBOX.x"}
    body = {"stream_name": walk.stream, "config": config}
    created = await walk.api("CONSUMER.CREATE", body, suffix=f".mine.{walk.subject}.a")
    pull = {"stream_name": walk.stream, "config": {"ack_policy": "explicit"}}
    return created, await walk.api("CONSUMER.CREATE", pull, suffix=".other")


@check
async def wrong_names(walk: Walk) -> object:
    await walk.add()
    bodies: list[tuple[str, str, object]] = [
        ("CONSUMER.DURABLE.CREATE", ".c", {"stream_name": walk.stream, "config": {"durable_name": "d"}}),
        ("CONSUMER.DURABLE.CREATE", ".c", {"stream_name": "OTHER", "config": {"durable_name": "c"}}),
        ("CONSUMER.DURABLE.CREATE", ".c", {"stream_name": walk.stream, "config": {}}),
        ("CONSUMER.DURABLE.CREATE", ".c", b"{"),
        ("CONSUMER.CREATE", "", {"stream_name": walk.stream, "config": {"durable_name": "c"}}),
        (
            "CONSUMER.CREATE",
            ".c.wrong_names.a",
            {"stream_name": walk.stream, "config": {"name": "c", "filter_subject": "wrong_names.b"}},
        ),
    ]
    return [await walk.api(kind, body, suffix=suffix) for kind, suffix, body in bodies]


@check
async def update_consumer(walk: Walk) -> object:
    await walk.add()
    found = []
    base = {"durable_name": "c", "ack_policy": "explicit"}
    for config in (base, base, base | {"ack_policy": "none"}, base | {"max_ack_pending": 3}):
        body = {"stream_name": walk.stream, "config": config}
        found.append(await walk.api("CONSUMER.DURABLE.CREATE", body, suffix=".c"))
    return found


@check
async def max_consumers(walk: Walk) -> object:
    await walk.add(max_consumers=1)
    await walk.consumer()
    return await walk.raises(walk.consumer(durable_name="d"))


@check
async def fetch(walk: Walk) -> object:
    await walk.add()
    await walk.fill(*"abc")
    await walk.consumer()
    messages = await walk.fetch(3)
    before = await walk.counts()
    for index in (0, 2, 1):
        await messages[index].ack_sync(timeout=PATIENT)
    return delivered(messages), before, await walk.counts()


@check
async def floors(walk: Walk) -> object:
    await walk.add()
    await walk.fill(*"abcdef")
    await walk.consumer()
    messages = await walk.fetch(6)
    found = []
    for index in (1, 0, 4, 2, 5, 3):
        await messages[index].ack_sync(timeout=PATIENT)
        found.append(await walk.counts())
    return found


@check
async def ack_all(walk: Walk) -> object:
    await walk.add()
    await walk.fill(*"abcd")
    await walk.consumer(ack_policy=AckPolicy.ALL)
    messages = await walk.fetch(4)
    await messages[2].ack_sync(timeout=PATIENT)
    return await walk.counts()


@check
async def ack_none(walk: Walk) -> object:
    await walk.add()
    await walk.fill(*"abcd")
    await walk.consumer(ack_policy=AckPolicy.NONE)
    return delivered(await walk.fetch(3)), await walk.counts()


@check
async def acknowledged_twice(walk: Walk) -> object:
    await walk.add()
    await walk.fill(*"ab")
    await walk.consumer()
    (message,) = await walk.fetch(1)
    for _ in range(2):
        await walk.client.request(message.reply, b"+ACK", PATIENT)
    await walk.client.request(message.reply, b"junk", PATIENT)
    return await walk.counts()


@check
async def unknown_acknowledgement(walk: Walk) -> object:
    await walk.add()
    await walk.consumer()
    await walk.client.request(f"$JS.ACK.{walk.stream}.c.1.9.9.1.1", b"+ACK", PATIENT)
    try:
        await walk.client.request(f"$JS.ACK.{walk.stream}.other.1.1.1.1.1", b"+ACK", PATIENT)
    except NoRespondersError:
        return "no responders", await walk.counts()
    return "an answer"


@check
async def nak(walk: Walk) -> object:
    await walk.add()
    await walk.fill(*"ab")
    await walk.consumer()
    messages = await walk.fetch(2)
    await walk.client.request(messages[0].reply, b"-NAK", PATIENT)
    again = await walk.fetch(1)
    return delivered(again), await walk.counts()


@check
async def nak_with_delay(walk: Walk) -> object:
    await walk.add()
    await walk.fill("a")
    await walk.consumer()
    (message,) = await walk.fetch(1)
    await walk.client.request(message.reply, b'-NAK {"delay": 500000000}', PATIENT)
    nothing = await walk.pull("c", {"batch": 1, "no_wait": True}, 1)
    return nothing, delivered(await walk.fetch(1))


@check
async def term(walk: Walk) -> object:
    await walk.add()
    await walk.fill(*"ab")
    await walk.consumer(ack_wait=1)
    messages = await walk.fetch(2)
    await walk.client.request(messages[0].reply, b"+TERM", PATIENT)
    return delivered(await walk.fetch(1))


@check
async def progress(walk: Walk) -> object:
    await walk.add()
    await walk.fill("a")
    await walk.consumer()
    (message,) = await walk.fetch(1)
    await walk.client.request(message.reply, b"+WPI", PATIENT)
    return await walk.counts()


@check
async def next_with_an_acknowledgement(walk: Walk) -> object:
    await walk.add()
    await walk.fill(*"ab")
    await walk.consumer()
    (message,) = await walk.fetch(1)
    inbox = walk.client.new_inbox()
    sub = await walk.client.subscribe(inbox)
    await walk.client.publish(message.reply, b"+NXT", reply=inbox)
    return message_facts(await sub.next_msg(timeout=PATIENT)), await walk.counts()


@check
async def ack_wait(walk: Walk) -> object:
    await walk.add()
    await walk.fill("a")
    await walk.consumer(ack_wait=0.5)
    first = await walk.fetch(1)
    second = await walk.fetch(1)
    await second[0].ack_sync(timeout=PATIENT)
    return delivered(first), delivered(second), await walk.counts()


@check
async def max_deliver(walk: Walk) -> object:
    await walk.add()
    await walk.fill(*"ab")
    await walk.consumer(max_deliver=2)
    for _ in range(2):
        (message,) = await walk.fetch(1)
        await walk.client.request(message.reply, b"-NAK", PATIENT)
    return delivered(await walk.fetch(1))


@check
async def max_ack_pending(walk: Walk) -> object:
    await walk.add()
    await walk.fill(*"abc")
    await walk.consumer(max_ack_pending=2)
    messages = await walk.fetch(2)
    waiting = await walk.pull("c", {"batch": 1, "expires": 300_000_000}, 1)
    await messages[0].ack_sync(timeout=PATIENT)
    return waiting, delivered(await walk.fetch(1))


@check
async def pull_statuses(walk: Walk) -> object:
    await walk.add()
    await walk.consumer(max_waiting=1)
    return [
        await walk.pull("c", {"batch": 1, "no_wait": True}, 1),
        await walk.pull("c", {"batch": 2, "expires": 200_000_000}, 1),
        await walk.pull("c", {"batch": 1, "expires": 100_000_000, "idle_heartbeat": 300_000_000}, 1),
    ]


@check
async def pull_heartbeats(walk: Walk) -> object:
    await walk.add()
    await walk.fill("a")
    await walk.consumer()
    return await walk.pull("c", {"batch": 2, "expires": 1_400_000_000, "idle_heartbeat": 500_000_000}, 4)


@check
async def pull_limits(walk: Walk) -> object:
    await walk.add()
    await walk.fill("a")
    config = {"durable_name": "c", "ack_policy": "explicit", "max_batch": 2, "max_expires": 10**9}
    body = {"stream_name": walk.stream, "config": config}
    await walk.api("CONSUMER.DURABLE.CREATE", body, suffix=".c")
    return [
        await walk.pull("c", {"batch": 5}, 1),
        await walk.pull("c", {"batch": 1, "expires": 10**10}, 1),
        await walk.pull("c", {"batch": 1, "expires": 2 * 10**8, "max_bytes": 1}, 1),
    ]


@check
async def pull_of_a_push_consumer(walk: Walk) -> object:
    await walk.add()
    await walk.consumer(deliver_subject="pushes")
    return await walk.pull("c", {"batch": 1}, 1)


@check
async def filters(walk: Walk) -> object:
    await walk.add()
    await walk.fill(*"abcabc")
    await walk.consumer(filter_subject="filters.b")
    await walk.consumer(durable_name="d", filter_subject="filters.*")
    return delivered(await walk.fetch(2)), await walk.counts(), len(await walk.fetch(6, "d"))


@check
async def policies(walk: Walk) -> object:
    await walk.add()
    await walk.fill(*"abcabc")
    found = []
    starts: list[tuple[DeliverPolicy, dict[str, Any], int]] = [
        (DeliverPolicy.ALL, {}, 6),
        (DeliverPolicy.LAST, {}, 1),
        (DeliverPolicy.LAST, {"filter_subject": "policies.a"}, 1),
        (DeliverPolicy.BY_START_SEQUENCE, {"opt_start_seq": 3}, 4),
        (DeliverPolicy.BY_START_TIME, {"opt_start_time": "2020-01-01T00:00:00Z"}, 6),
        (DeliverPolicy.LAST_PER_SUBJECT, {"filter_subject": "policies.*"}, 3),
    ]
    for number, (policy, values, count) in enumerate(starts):
        name = f"c{number}"
        await walk.consumer(durable_name=name, deliver_policy=policy, **values)
        found.append((delivered(await walk.fetch(count, name)), await walk.counts(name)))
    await walk.consumer(durable_name="new", deliver_policy=DeliverPolicy.NEW)
    await walk.fill("z")
    return found, delivered(await walk.fetch(1, "new"))


@check
async def headers_only(walk: Walk) -> object:
    await walk.add()
    await walk.js.publish("headers_only.a", b"12345", headers={"One": "1"})
    await walk.js.publish("headers_only.b", b"123")
    await walk.consumer(headers_only=True)
    return [(each.headers, each.data) for each in await walk.fetch(2)]


@check
async def ephemeral(walk: Walk) -> object:
    await walk.add()
    await walk.fill(*"ab")
    sub = await walk.js.pull_subscribe("ephemeral.>")
    return delivered(await sub.fetch(2, timeout=PATIENT))


# Pushing.


@check
async def push(walk: Walk) -> object:
    await walk.add()
    await walk.fill(*"ab")
    sub = await walk.js.subscribe("push.>", durable="c")
    messages = [await sub.next_msg(timeout=PATIENT) for _ in range(2)]
    await walk.fill("c")
    messages.append(await sub.next_msg(timeout=PATIENT))
    for each in messages:
        await each.ack_sync(timeout=PATIENT)
    info = await walk.js.consumer_info(walk.stream, "c")
    return delivered(messages), await walk.counts(), info.push_bound


@check
async def push_waits_for_a_subscriber(walk: Walk) -> object:
    await walk.add()
    await walk.fill("a")
    await walk.consumer(deliver_subject="waits.here")
    before = await walk.counts()
    sub = await walk.client.subscribe("waits.here")
    return before, message_facts(await sub.next_msg(timeout=PATIENT))


@check
async def push_to_a_group(walk: Walk) -> object:
    await walk.add()
    found: list[bytes] = []
    done = asyncio.Event()

    async def take(message: Msg) -> None:
        found.append(message.data)
        if len(found) == 5:
            done.set()

    await walk.js.subscribe("push_to_a_group.>", "workers", cb=take)
    await walk.js.subscribe("push_to_a_group.>", "workers", cb=take)
    await walk.fill(*"abcde")
    await asyncio.wait_for(done.wait(), PATIENT)
    return sorted(found)


@check
async def ordered(walk: Walk) -> object:
    await walk.add()
    await walk.fill(*"abcd")
    sub = await walk.js.subscribe("ordered.>", ordered_consumer=True)
    return delivered([await sub.next_msg(timeout=PATIENT) for _ in range(4)])


@check
async def heartbeats(walk: Walk) -> object:
    await walk.add()
    await walk.fill("a")
    sub = await walk.client.subscribe("beats.here")
    await walk.consumer(deliver_subject="beats.here", idle_heartbeat=0.2, flow_control=True)
    return [message_facts(await sub.next_msg(timeout=PATIENT)) for _ in range(3)]


# Buckets.


@check
async def values(walk: Walk) -> object:
    bucket = await walk.js.create_key_value(bucket="values")
    found: list[object] = [
        await bucket.put("a", b"1"),
        await bucket.put("b", b"2"),
        await bucket.put("a", b"3"),
    ]
    for key in ("a", "b"):
        entry = await bucket.get(key)
        found.append((entry.key, entry.value, entry.revision, entry.operation))
    status = await bucket.status()
    return found, await walk.raises(bucket.get("other")), status.values, status.history, status.ttl


@check
async def value_revisions(walk: Walk) -> object:
    bucket = await walk.js.create_key_value(bucket="revisions")
    return [
        await bucket.create("a", b"1"),
        await walk.raises(bucket.create("a", b"2")),
        await bucket.update("a", b"3", last=1),
        await walk.raises(bucket.update("a", b"4", last=1)),
        await bucket.delete("a"),
        await walk.raises(bucket.get("a")),
        await bucket.create("a", b"5"),
        await walk.raises(bucket.delete("a", last=2)),
        (await bucket.get("a", revision=4)).value,
        await walk.raises(bucket.get("a", revision=1)),
    ]


@check
async def keys(walk: Walk) -> object:
    bucket = await walk.js.create_key_value(bucket="keys")
    nothing = await walk.raises(bucket.keys())
    for key in ("a", "b.c", "d"):
        await bucket.put(key, b"")
    await bucket.delete("d")
    return nothing, sorted(await bucket.keys())


@check
async def watch(walk: Walk) -> object:
    bucket = await walk.js.create_key_value(bucket="watch")
    await bucket.put("a", b"1")
    await bucket.put("b", b"2")
    watcher: Any = await bucket.watchall()
    found = []
    for _ in range(3):
        entry = await watcher.updates(timeout=PATIENT)
        found.append(None if entry is None else (entry.key, entry.value, entry.delta))
    await bucket.put("b", b"3")
    await bucket.delete("a")
    await bucket.purge("b")
    for _ in range(3):
        entry = await watcher.updates(timeout=PATIENT)
        assert entry is not None
        found.append((entry.key, entry.value, entry.operation))
    await watcher.stop()
    return found


@check
async def history(walk: Walk) -> object:
    bucket = await walk.js.create_key_value(bucket="history", history=3)
    for number in range(5):
        await bucket.put("a", b"%d" % number)
    await bucket.put("b", b"")
    found = [(each.value, each.revision, each.operation) for each in await bucket.history("a")]
    await bucket.purge("a")
    return found, [(each.revision, each.operation) for each in await bucket.history("a")]


@check
async def purge_deletes(walk: Walk) -> object:
    bucket = await walk.js.create_key_value(bucket="deletes")
    for key in "abc":
        await bucket.put(key, b"1")
    await bucket.delete("a")
    await bucket.delete("b")
    await bucket.purge_deletes(olderthan=-1)
    return (await bucket.status()).values, await bucket.keys()


@check
async def deleted_bucket(walk: Walk) -> object:
    await walk.js.create_key_value(bucket="gone")
    await walk.js.delete_key_value("gone")
    return await walk.raises(walk.js.key_value("gone"))


@check
async def objects(walk: Walk) -> object:
    store = await walk.js.create_object_store("objects")
    await store.put("file", b"x" * 300_000)
    found = await store.get("file")
    await store.delete("file")
    return len(found.data or b""), found.info.chunks, await walk.raises(store.get("file"))


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    directory: Path = tmp_path_factory.mktemp("jetstream")
    with nats_server_port(directory) as theirs, jetstream_broker(directory / "kalda") as broker:
        yield theirs, nats_port(broker)


@pytest.mark.parametrize("name", CHECKS)
async def test_answers_are_equal(name: str, ports: tuple[int, int]) -> None:
    answers = []
    for port in ports:
        client = await nats.connect(f"nats://127.0.0.1:{port}", connect_timeout=PATIENT)
        try:
            async with asyncio.timeout(3 * PATIENT):
                answers.append(await CHECKS[name](Walk(client, name)))
        finally:
            await client.close()
    expected, found = answers
    assert expected == found
