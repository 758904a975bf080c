"""Requests of JetStream with values that no client sends: the broker goes on, and nothing goes wrong."""

import json
import random
from pathlib import Path

import nats
import pytest
from nats.errors import BadSubjectError

from tests.integration.nats.jetstream_servers import jetstream_broker
from tests.integration.nats.raw_nats import nats_port

PATIENT = 60

VALUES: list[object] = [
    None, True, False, 0, 1, -1, 5, 2**31, 2**63 - 1, 2**63, 2**70, 1.5, [], ["a.>"], ["x", 1], {}, {"a": 1},
    "", "x", "a.b", "a.>", "*", ">", "a..b", "x" * 300, "\0", "é", "\r\n", "1e9", "file", "limits",
    "2020-01-01T00:00:00Z", "9999-99-99T00:00:00Z", "0001-01-01T00:00:00Z", "all", "none", "explicit",
    "last", "new", "by_start_sequence", "by_start_time", "last_per_subject",
]  # fmt: skip
STREAM_FIELDS = (
    "name", "description", "subjects", "retention", "max_consumers", "max_msgs", "max_bytes", "max_age",
    "max_msgs_per_subject", "max_msg_size", "discard", "storage", "num_replicas", "duplicate_window",
    "allow_direct", "deny_delete", "deny_purge", "allow_rollup_hdrs", "no_ack", "mirror", "sources",
)  # fmt: skip
CONSUMER_FIELDS = (
    "durable_name", "name", "deliver_policy", "opt_start_seq", "opt_start_time", "ack_policy", "ack_wait",
    "max_deliver", "backoff", "filter_subject", "filter_subjects", "max_waiting", "max_ack_pending",
    "idle_heartbeat", "flow_control", "headers_only", "max_batch", "max_expires", "max_bytes",
    "inactive_threshold", "deliver_subject", "deliver_group",
)  # fmt: skip
HEADERS: list[dict[str, str] | None] = [
    None,
    {"Nats-Msg-Id": "1"},
    {"Nats-Rollup": "sub"},
    {"Nats-Rollup": "all"},
    {"Nats-Expected-Last-Sequence": "x"},
    {"Nats-Expected-Last-Subject-Sequence": "9" * 30},
]
ACKS = [
    b"+ACK",
    b"-NAK",
    b"+TERM",
    b"+WPI",
    b"+NXT",
    b'+NXT {"batch":3}',
    b'-NAK {"delay":5}',
    b"-NAK {",
    b"\xff",
]
API = "$JS.API."


class Hostile:
    """Makes requests at random."""

    def __init__(self, seed: int) -> None:
        self._choose = random.Random(seed)

    def some(self, fields: tuple[str, ...], share: float) -> dict[str, object]:
        return {each: self._choose.choice(VALUES) for each in fields if self._choose.random() < share}

    def body(self, value: object) -> bytes:
        data = json.dumps(value).encode()
        return data[: self._choose.randrange(9)] if self._choose.random() < 0.05 else data

    def next(self) -> tuple[str, bytes, dict[str, str] | None]:
        """Return a subject, a body and headers."""
        choose = self._choose
        stream = choose.choice(["S", "S", "T", "NO", "", "*"])
        consumer = choose.choice(["c", "d", "x y", "c.c", ""])
        kind = choose.random()
        if kind < 0.3:
            subject = f"{stream.lower() or 's'}.{choose.choice('abc')}"
            return subject, bytes(choose.randrange(200)), choose.choice(HEADERS)
        if kind < 0.4:
            verb = choose.choice(["CREATE", "UPDATE"])
            config = {"name": stream, "subjects": [f"{stream.lower()}.>"]} | self.some(STREAM_FIELDS, 0.08)
            return f"{API}STREAM.{verb}.{stream}", self.body(config), None
        if kind < 0.6:
            forms = [
                f"CREATE.{stream}",
                f"DURABLE.CREATE.{stream}.{consumer}",
                f"CREATE.{stream}.{consumer}.s.a",
            ]
            config = {"durable_name": consumer} if choose.random() < 0.6 else {}
            config |= self.some(CONSUMER_FIELDS, 0.1)
            body = self.body({"stream_name": stream, "config": config})
            return f"{API}CONSUMER.{choose.choice(forms)}", body, None
        if kind < 0.7:
            pull = self.some(("batch", "expires", "no_wait", "idle_heartbeat", "max_bytes"), 0.5)
            return f"{API}CONSUMER.MSG.NEXT.{stream}.{consumer}", self.body(pull), None
        if kind < 0.85:
            sequence = choose.choice([1, 2, 3, 9, 10**17, "x"])
            return f"$JS.ACK.{stream}.{consumer}.1.{sequence}.1.5.0", choose.choice(ACKS), None
        if kind < 0.95:
            verb = choose.choice(["PURGE", "INFO", "MSG.GET", "MSG.DELETE", "LEADER.STEPDOWN", "SNAPSHOT"])
            fields = (
                "seq",
                "keep",
                "filter",
                "last_by_subj",
                "next_by_subj",
                "no_erase",
                "subjects_filter",
                "offset",
            )
            return f"{API}STREAM.{verb}.{stream}", self.body(self.some(fields, 0.3)), None
        subject = choose.choice(
            [
                f"{API}CONSUMER.NAMES.{stream}",
                f"{API}CONSUMER.LIST.{stream}",
                f"{API}CONSUMER.DELETE.{stream}.{consumer}",
                f"{API}CONSUMER.INFO.{stream}.{consumer}",
                f"{API}STREAM.NAMES",
                f"{API}STREAM.LIST",
                f"{API}DIRECT.GET.{stream}",
                f"$JS.FC.{stream}.{consumer}.5",
            ]
        )
        return subject, self.body(self.some(("offset", "subject", "seq"), 0.4)), None


@pytest.mark.parametrize("seed", range(2))
async def test_the_broker_goes_on_whatever_is_asked(seed: int, tmp_path: Path) -> None:
    hostile = Hostile(seed)
    with jetstream_broker(tmp_path / "data") as broker:
        client = await nats.connect(f"nats://127.0.0.1:{nats_port(broker)}", allow_reconnect=False)
        inbox = client.new_inbox()
        await client.subscribe(inbox)
        js = client.jetstream(timeout=PATIENT)
        for name in ("S", "T"):
            await js.add_stream(name=name, subjects=[f"{name.lower()}.>"], allow_rollup_hdrs=True)
        for number in range(1_500):
            subject, body, headers = hostile.next()
            try:
                await client.publish(subject, body, reply=inbox, headers=headers)
            except BadSubjectError:
                continue
            if not number % 50:
                await client.flush(timeout=PATIENT)
        await client.flush(timeout=PATIENT)
        await js.add_stream(name="AFTER", subjects=["after"])
        assert 1 == (await js.publish("after", b"")).seq
        await client.close()
        log = broker.log()
    assert "Traceback" not in log
    assert " ERROR " not in log
