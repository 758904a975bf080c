"""A transactional copier as a process of its own: consume, produce, commit offsets and output as one.

``python -m tests.chaos.copier --bootstrap … --number 0`` runs until it is ended, by whatever signal. It is
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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import confluent_kafka

GROUP = "copiers"
SESSION_TIMEOUT_MS = 6_000
HEARTBEAT_INTERVAL_MS = 1_000
TRANSACTION_TIMEOUT_MS = 10_000
MESSAGES_PER_TRANSACTION = 200
CALL_SECONDS = 5.0
HANG_SECONDS = 8.0
"""How long a call may take that is to return within `CALL_SECONDS`, on a busy machine."""
HANGS = "hangs in"
"""What the log has in front of the call that did not return; the run counts these."""
ATTEMPTS = 3
PAUSE_SECONDS = 0.2
WATCH_SECONDS = 0.25

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


class Watchdog:
    """Begins a new life where a call of the client does not return although its own time-out is over.

    librdkafka's can hang in `send_offsets_to_transaction` (its issues 5456, 5511). Time in which this process
    stands still does not count.
    """

    def __init__(self, number: int, program: str = "tests.chaos.copier") -> None:
        self._number = number
        self._program = program
        self._call = ""
        self._seconds = 0.0
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    @contextlib.contextmanager
    def watched(self, call: str) -> Iterator[None]:
        """Watch a call that is to return within `CALL_SECONDS`."""
        self._seconds, self._call = 0.0, call
        try:
            yield
        finally:
            self._call = ""
            if self._seconds > CALL_SECONDS:
                say(self._number, f"{call} returned after {self._seconds:.1f} s")

    def _watch(self) -> None:
        while not self._call or self._seconds < HANG_SECONDS:
            time.sleep(WATCH_SECONDS)
            self._seconds += WATCH_SECONDS
        say(self._number, f"{HANGS} {self._call}: begins anew")
        faulthandler.dump_traceback()
        os.execv(sys.executable, [sys.executable, "-m", self._program, *sys.argv[1:]])


@dataclass(frozen=True, slots=True)
class Options:
    """Who copies what."""

    bootstrap: str
    number: int
    life: int
    source: str
    target: str
    protocol: str
    debug: str


def client_id(number: int, life: int) -> str:
    """Return how a copier's life is called; the group tells whose members it has by it."""
    return f"copier-{number}-{life}"


class Copier:
    """One life of a consumer and a transactional producer; a fenced or failed one is thrown away."""

    def __init__(self, options: Options, watchdog: Watchdog) -> None:
        self._number = options.number
        self._target = options.target
        self._watchdog = watchdog
        debug = options.debug
        common: dict[str, object] = {**COMMON, **({"debug": debug, "log_level": 7} if debug else {})}
        group_settings: dict[str, object] = (
            {"group.protocol": "consumer"}
            if options.protocol == "consumer"
            else {"session.timeout.ms": SESSION_TIMEOUT_MS, "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS}
        )
        self._consumer = confluent_kafka.Consumer(
            {
                **common,
                **group_settings,
                # A copier that hangs in a call must not hold up the others' rebalance.
                "max.poll.interval.ms": SESSION_TIMEOUT_MS,
                "bootstrap.servers": options.bootstrap,
                "group.id": GROUP,
                "client.id": client_id(options.number, options.life),
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self._producer = confluent_kafka.Producer(
            {
                **common,
                "bootstrap.servers": options.bootstrap,
                "transactional.id": f"copier-{options.number}",
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 2,
            }
        )
        self._until_done("init_transactions", lambda: self._producer.init_transactions(CALL_SECONDS))
        self._is_rebalanced = False
        self._consumer.subscribe(
            [options.source],
            on_assign=self._on_rebalance,
            on_revoke=self._on_rebalance,
            on_lost=self._on_rebalance,
        )

    def close(self) -> None:
        """Let go of the group; the producer's transaction, if any, is left to be fenced."""
        with (
            contextlib.suppress(confluent_kafka.KafkaException, RuntimeError),
            self._watchdog.watched("close"),
        ):
            self._consumer.close()

    def copy_some(self) -> int:
        """Copy what has come, as one transaction; return how many records.

        Raises:
            confluent_kafka.KafkaException: this life is over.
        """
        self._is_rebalanced = False
        with self._watchdog.watched("consume"):
            polled = self._consumer.consume(MESSAGES_PER_TRANSACTION, timeout=0.2)
        messages = [message for message in polled if message.error() is None]
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
            self._until_done("abort_transaction", lambda: self._producer.abort_transaction(CALL_SECONDS))
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
        self._until_done(
            "send_offsets_to_transaction",
            lambda: self._producer.send_offsets_to_transaction(offsets, group, CALL_SECONDS),
        )
        self._until_done("commit_transaction", lambda: self._producer.commit_transaction(CALL_SECONDS))

    def _on_rebalance(self, *_: object) -> None:
        self._is_rebalanced = True

    def _go_back(self) -> None:
        """Read again what the aborted transaction had read."""
        assigned = self._consumer.assignment()
        if not assigned:
            return
        with self._watchdog.watched("committed"):
            committed = self._consumer.committed(assigned, CALL_SECONDS)
        for position in committed:
            if position.offset < 0:
                position.offset = confluent_kafka.OFFSET_BEGINNING
            self._consumer.seek(position)

    def _until_done(self, name: str, call: Callable[[], object]) -> None:
        """Call again what the client says may be called again, but not for ever."""
        for attempts_left in reversed(range(ATTEMPTS)):
            try:
                with self._watchdog.watched(name):
                    call()
                return
            except confluent_kafka.KafkaException as failure:
                if not failure.args[0].retriable() or not attempts_left:
                    raise


def begin_anew() -> None:
    """Replace this process: librdkafka can take long to let go of a producer whose brokers are gone."""
    os.execv(sys.executable, [sys.executable, "-m", "tests.chaos.copier", *sys.argv[1:]])


def run(options: Options) -> None:
    """Copy until this life is over."""
    watchdog = Watchdog(options.number)
    copier: Copier | None = None
    try:
        copier = Copier(options, watchdog)
        while True:
            copier.copy_some()
    except confluent_kafka.KafkaException as failure:
        say(options.number, f"begins anew: {described(failure.args[0])}")
        if copier is not None:
            copier.close()
    time.sleep(PAUSE_SECONDS)
    begin_anew()


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--number", type=int, required=True)
    parser.add_argument("--life", type=int, default=0, help="tells the members of a copier's lives apart")
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--protocol", choices=("classic", "consumer"), default="classic")
    parser.add_argument("--debug", default="", help="librdkafka's debug contexts, e.g. eos,cgrp,fetch")
    run(Options(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
