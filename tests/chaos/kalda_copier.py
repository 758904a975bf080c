"""A transactional copier on Kalda's own clients; see `tests.chaos.copier`, which takes the same arguments."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any, TypedDict

from kalda import Consumer, ConsumerRebalanceListener, ConsumerRecord, Producer, TopicPartition
from kalda.clients.errors import ClientError, RequestTimedOutError, TransactionAbortableError
from tests.chaos.copier import (
    ATTEMPTS,
    CALL_SECONDS,
    GROUP,
    HEARTBEAT_INTERVAL_MS,
    MESSAGES_PER_TRANSACTION,
    PAUSE_SECONDS,
    SESSION_TIMEOUT_MS,
    TRANSACTION_TIMEOUT_MS,
    Options,
    Watchdog,
    client_id,
    say,
)
from tests.chaos.kalda_clients import SETTINGS


class _GroupTimes(TypedDict, total=False):
    session_timeout_ms: int
    heartbeat_interval_ms: int


class KaldaCopier(ConsumerRebalanceListener):
    """One life of a consumer and a transactional producer; a fenced or failed one is thrown away."""

    def __init__(self, options: Options, watchdog: Watchdog) -> None:
        self._number = options.number
        self._target = options.target
        self._watchdog = watchdog
        self._is_rebalanced = False
        group_settings: _GroupTimes = (
            {}
            if options.protocol == "consumer"
            else {"session_timeout_ms": SESSION_TIMEOUT_MS, "heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS}
        )
        self._consumer = Consumer(
            bootstrap_servers=options.bootstrap,
            group_id=GROUP,
            group_protocol="consumer" if options.protocol == "consumer" else "classic",
            client_id=client_id(options.number, options.life),
            # A copier that hangs in a call must not hold up the others' rebalance.
            max_poll_interval_ms=SESSION_TIMEOUT_MS,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            **group_settings,
            **SETTINGS,
        )
        self._producer = Producer(
            bootstrap_servers=options.bootstrap,
            transactional_id=f"copier-{options.number}",
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            linger_ms=2,
            max_block_ms=int(CALL_SECONDS * 1000),
            delivery_timeout_ms=TRANSACTION_TIMEOUT_MS + 2,
            **SETTINGS,
        )
        self._until_done("init_transactions", self._producer.init_transactions)
        self._consumer.subscribe([options.source], listener=self)

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Note that records in hand may belong to another member by now."""
        self._is_rebalanced = True

    on_partitions_revoked = on_partitions_assigned
    on_partitions_lost = on_partitions_assigned

    def close(self) -> None:
        """Leave the group; the producer's transaction, if any, is left to be fenced."""
        with self._watchdog.watched("close"):
            self._producer.close(timeout_s=0)
            self._consumer.close(timeout_s=CALL_SECONDS)

    def copy_some(self) -> int:
        """Copy what has come, as one transaction; return how many records.

        Raises:
            ClientError: this life is over.
        """
        self._is_rebalanced = False
        with self._watchdog.watched("poll"):
            records = self._consumer.poll(0.2, max_records=MESSAGES_PER_TRANSACTION)
        if not records:
            return 0
        self._producer.begin_transaction()
        try:
            self._copy(records)
        except TransactionAbortableError as error:
            say(self._number, f"aborts: {type(error).__name__}: {error}")
            self._until_done("abort_transaction", self._producer.abort_transaction)
            self._go_back()
            return 0
        return len(records)

    def _copy(self, records: Iterable[ConsumerRecord[Any, Any]]) -> None:
        ends: dict[TopicPartition, int] = {}
        for record in records:
            self._producer.send(self._target, record.value, partition=record.partition)
            ends[TopicPartition(record.topic, record.partition)] = record.offset + 1
        group = self._consumer.group_metadata()
        self._until_done(
            "send_offsets_to_transaction", lambda: self._producer.send_offsets_to_transaction(ends, group)
        )
        self._until_done("commit_transaction", self._producer.commit_transaction)

    def _until_done(self, name: str, call: Callable[[], object]) -> None:
        """Call again what goes on after its time-out, as the error says, but not for ever."""
        for attempts_left in reversed(range(ATTEMPTS)):
            try:
                with self._watchdog.watched(name):
                    call()
                return
            except RequestTimedOutError:
                if not attempts_left:
                    raise

    def _go_back(self) -> None:
        """Read again what the aborted transaction had read."""
        assigned = list(self._consumer.assignment())
        if not assigned:
            return
        with self._watchdog.watched("committed"):
            committed = self._consumer.committed(assigned)
        for partition, found in committed.items():
            if found is None:
                self._consumer.seek_to_beginning([partition])
            else:
                self._consumer.seek(partition, found.offset)


def run(options: Options) -> None:
    """Copy until this life is over."""
    watchdog = Watchdog(options.number, "tests.chaos.kalda_copier")
    copier: KaldaCopier | None = None
    try:
        copier = KaldaCopier(options, watchdog)
        while True:
            copier.copy_some()
    except ClientError as error:
        say(options.number, f"begins anew: {type(error).__name__}: {error}")
        if copier is not None:
            copier.close()
    time.sleep(PAUSE_SECONDS)
    os.execv(sys.executable, [sys.executable, "-m", "tests.chaos.kalda_copier", *sys.argv[1:]])


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--number", type=int, required=True)
    parser.add_argument("--life", type=int, default=0, help="tells the members of a copier's lives apart")
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--protocol", choices=("classic", "consumer"), default="classic")
    parser.add_argument("--debug", default="", help="taken as librdkafka's copier takes it, and not used")
    run(Options(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
