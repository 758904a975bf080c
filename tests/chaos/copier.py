"""A transactional copier as a process of its own: consume, produce, commit offsets and output as one.

``python -m tests.chaos.copier --bootstrap … --id 0`` runs until it is ended, by whatever signal. It is
written as an application should be: it aborts what can be aborted, begins anew where it is fenced or the
client gave up, and never decides by itself what was committed.
"""

import argparse
import contextlib
import datetime
import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable

import confluent_kafka

GROUP = "copiers"
SESSION_TIMEOUT_MS = 6_000
TRANSACTION_TIMEOUT_MS = 10_000
MESSAGES_PER_TRANSACTION = 200
CALL_SECONDS = 5.0
ATTEMPTS = 3
STALL_SECONDS = 12.0
PAUSE_SECONDS = 0.2

COMMON = {
    "retry.backoff.ms": 20,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 10_000,
    "socket.timeout.ms": 10_000,
    "log_level": 0,
}


def say(number: int, text: str) -> None:
    """Tell on stderr, which the run keeps, what happens to this copier and when."""
    now = datetime.datetime.now(datetime.UTC).strftime("%H:%M:%S.%f")[:-3]
    print(f"{now} copier {number} ({os.getpid()}): {text}", file=sys.stderr, flush=True)


def described(error: confluent_kafka.KafkaError) -> str:
    """Return an error with its name and text, as the brokers' logs and librdkafka's sources have them."""
    return f"{error.name()} ({error.code()}): {error.str()}"


class Copier:
    """One life of a consumer and a transactional producer; a fenced or failed one is thrown away."""

    def __init__(
        self, bootstrap: str, number: int, source: str, target: str, protocol: str, debug: str
    ) -> None:
        self._number = number
        self._target = target
        common = {**COMMON, **({"debug": debug, "log_level": 7} if debug else {})}
        group_settings: dict[str, object] = (
            {"group.protocol": "consumer"}
            if protocol == "consumer"
            else {
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": 1_000,
                # A copier that hangs in a call must not hold up the others' rebalance.
                "max.poll.interval.ms": SESSION_TIMEOUT_MS,
            }
        )
        self._consumer = confluent_kafka.Consumer(
            {
                **common,
                **group_settings,
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "client.id": f"copier-{number}",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self._producer = confluent_kafka.Producer(
            {
                **common,
                "bootstrap.servers": bootstrap,
                "transactional.id": f"copier-{number}",
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 2,
            }
        )
        _until_done(lambda: self._producer.init_transactions(CALL_SECONDS))
        self._is_rebalanced = False
        self._consumer.subscribe(
            [source],
            on_assign=self._on_rebalance,
            on_revoke=self._on_rebalance,
            on_lost=self._on_rebalance,
        )

    def close(self) -> None:
        """Let go of the group; the producer's transaction, if any, is left to be fenced."""
        with contextlib.suppress(confluent_kafka.KafkaException, RuntimeError):
            self._consumer.close()

    def copy_some(self) -> int:
        """Copy what has come, as one transaction; return how many records.

        Raises:
            confluent_kafka.KafkaException: this life is over.
        """
        self._is_rebalanced = False
        messages = [
            message
            for message in self._consumer.consume(MESSAGES_PER_TRANSACTION, timeout=0.2)
            if message.error() is None
        ]
        if not messages:
            return 0
        if self._is_rebalanced:
            # Some of them may belong to somebody else by now.
            self._go_back()
            return 0
        self._producer.begin_transaction()
        try:
            self._copy(messages)
        except confluent_kafka.KafkaException as failure:
            error = failure.args[0]
            if not error.txn_requires_abort():
                raise
            say(self._number, f"aborts: {described(error)}")
            _until_done(lambda: self._producer.abort_transaction(CALL_SECONDS))
            self._go_back()
            return 0
        return len(messages)

    def _copy(self, messages: Iterable[confluent_kafka.Message]) -> None:
        ends: dict[tuple[str, int], int] = {}
        for message in messages:
            self._producer.produce(self._target, value=message.value(), partition=message.partition())
            ends[message.topic(), message.partition()] = message.offset() + 1
        offsets = [confluent_kafka.TopicPartition(*partition, end) for partition, end in ends.items()]
        group = self._consumer.consumer_group_metadata()
        _until_done(lambda: self._producer.send_offsets_to_transaction(offsets, group, CALL_SECONDS))
        _until_done(lambda: self._producer.commit_transaction(CALL_SECONDS))

    def _on_rebalance(self, *_: object) -> None:
        self._is_rebalanced = True

    def _go_back(self) -> None:
        """Read again what the aborted transaction had read."""
        assigned = self._consumer.assignment()
        for position in self._consumer.committed(assigned, CALL_SECONDS) if assigned else ():
            if position.offset < 0:
                position.offset = confluent_kafka.OFFSET_BEGINNING
            self._consumer.seek(position)


def _until_done(call: Callable[[], object]) -> None:
    """Call again what the client says may be called again, but not for ever."""
    for attempts_left in reversed(range(ATTEMPTS)):
        try:
            call()
            return
        except confluent_kafka.KafkaException as failure:
            if not failure.args[0].retriable() or not attempts_left:
                raise


class Watchdog:
    """Begins a new life where a call of the client never returns, as librdkafka's can (issues 5456, 5511)."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._seen = time.monotonic()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def progress(self) -> None:
        """Say that the copier lives."""
        self._seen = time.monotonic()

    def _watch(self) -> None:
        while time.monotonic() - self._seen < STALL_SECONDS:
            time.sleep(0.5)
        say(self._number, "begins anew: stalled")
        faulthandler.dump_traceback()
        begin_anew()


def begin_anew() -> None:
    """Replace this process: librdkafka can take long to let go of a producer whose brokers are gone."""
    os.execv(sys.executable, [sys.executable, "-m", "tests.chaos.copier", *sys.argv[1:]])


def run(bootstrap: str, number: int, source: str, target: str, protocol: str, debug: str) -> None:
    """Copy until this life is over."""
    watchdog = Watchdog(number)
    copier: Copier | None = None
    try:
        copier = Copier(bootstrap, number, source, target, protocol, debug)
        while True:
            copier.copy_some()
            watchdog.progress()
    except confluent_kafka.KafkaException as failure:
        say(number, f"begins anew: {described(failure.args[0])}")
        if copier is not None:
            copier.close()
    time.sleep(PAUSE_SECONDS)
    begin_anew()


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--id", type=int, required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--protocol", choices=("classic", "consumer"), default="classic")
    parser.add_argument("--debug", default="", help="librdkafka's debug contexts, e.g. eos,cgrp,fetch")
    options = parser.parse_args()
    run(options.bootstrap, options.id, options.source, options.target, options.protocol, options.debug)


if __name__ == "__main__":
    main()
