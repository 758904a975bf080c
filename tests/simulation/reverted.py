"""Faults of Kalda that the simulation found, put back one at a time: each is its mend, reverted by a patch.

They show that the tests that guard a mend can fail. In a process with one of them,

    python -m tests.simulation.reverted NAME pytest tests/unit/storage/test_checkpoints.py
    python -m tests.simulation.reverted NAME simulate --plan tests/simulation/regressions/NAME.yml

run pytest and `kalda`, and

    python -m tests.simulation.reverted --guards [NAME…]

prints which unit tests fail without each mend, as JSON, and

    python -m tests.simulation.reverted [--seeds 20] [--jobs 2] [NAME…]

how many seeds fail with each plan that is kept, from the plan's own on; the exit code is 1 if one has none.
"""

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from kalda.broker.control_plane.requests import ControllerRequests
from kalda.broker.replicas.role_changes import RoleChanges
from kalda.broker.transactions.produce_gate import ProduceGate
from kalda.cli import main as kalda
from kalda.clients.consumer.group.classic_membership import ClassicMembership
from kalda.clients.consumer.group.consumer_membership import ConsumerMembership
from kalda.clients.producer import producer_sequences
from kalda.clients.producer.producer_sequences import ProducerSequences
from kalda.clients.values import ConsumerGroupMetadata
from kalda.etcd.requests import Requests
from kalda.etcd.watches import EtcdWatches
from kalda.simulation.run import WORKLOADS, run, warm_up
from kalda.simulation.runner import processors, run_many
from kalda.simulation.schedule import Outcome, Schedule, read_schedule
from kalda.storage import missing_filler
from kalda.storage.file_names import CLEANED_SUFFIX
from kalda.storage.leader_epoch_cache import LeaderEpochFileCache
from kalda.storage.missing_filler import GapFiller
from kalda.storage.offset_checkpoint import OffsetCheckpointFile
from tests.simulation import planted

PLANS: Final = Path(__file__).parent / "regressions"
TESTS: Final = "tests/unit/"
_GUARD_OPTIONS: Final = (
    *("-q", "--tb=no", "-p", "no:cacheprovider"),
    # Some code waits for ever without its mend.
    *("--timeout", "10", "-o", "timeout_method=signal"),
)


@dataclass(frozen=True, slots=True)
class Mend:
    """What mended a fault, how to revert it in this process, and the unit tests that guard it."""

    name: str
    """The name of the plan in `PLANS`, if one is kept."""
    revert: Callable[[], None]
    tests: tuple[str, ...]
    """Node ids below tests/unit; each of them fails without the mend."""

    @property
    def plan(self) -> Path:
        """The file with the schedule that found it."""
        return PLANS / f"{self.name}.yml"


MENDS: Final[dict[str, Mend]] = {}


def _mend(name: str, *tests: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def add(revert: Callable[[], None]) -> Callable[[], None]:
        MENDS[name] = Mend(name, revert, tests)
        return revert

    return add


def _patch(owner: Any, name: str, function: Any) -> None:
    setattr(owner, name, function)


def _nothing(*arguments: Any, **options: Any) -> None:
    """Do nothing, as before the mend."""


# Clients.


@_mend(
    "renumbered-batches",
    "clients/producer/test_produce_results.py::"
    "test_a_batch_is_not_renumbered_while_a_later_one_may_show_that_it_is_written",
)
def _renumbered_batches() -> None:
    def first_in_flight(self: ProducerSequences, partition: Any) -> Any:
        entry = self._partitions.get(partition)
        return None if entry is None else entry.first_in_flight

    _patch(ProducerSequences, "next_in_flight", first_in_flight)
    _patch(producer_sequences, "_may_have_later", lambda batch, entry: False)


@_mend(
    "offsets-of-a-removed-member",
    "clients/consumer/group/test_classic_membership.py::"
    "test_a_member_that_was_removed_loses_its_partitions_and_joins",
    "clients/consumer/group/test_consumer_membership.py::"
    "test_a_fenced_member_loses_its_partitions_and_joins_with_the_next_poll",
)
def _removed_member() -> None:
    def classic(self: Any) -> ConsumerGroupMetadata:
        generation = self._member.generation
        return ConsumerGroupMetadata(
            self._group_id, generation.generation_id, generation.member_id, self._instance_id
        )

    def consumer(self: Any) -> ConsumerGroupMetadata:
        epoch = self._member.epoch if self._member.epoch > 0 else -1
        return ConsumerGroupMetadata(self._group_id, epoch, self._member.member_id, self._instance_id)

    _patch(ClassicMembership, "metadata", classic)
    _patch(ConsumerMembership, "metadata", consumer)


# Logs.


@_mend(
    "forgotten-epoch",
    "storage/test_missing_offsets.py::test_records_of_an_epoch_that_the_log_has_forgotten_are_put_back",
)
def _forgotten_epoch() -> None:
    init = GapFiller.__init__

    def without_leader_epoch(self: Any, log: Any, resources: Any, gap: Any, leader_epoch: int = 0) -> None:
        del leader_epoch
        init(self, log, resources, gap)
        after = log.leader_epochs.epoch_for_offset(gap.end)
        self._epoch_max = log.leader_epochs.latest_epoch if after is None else after

    _patch(GapFiller, "__init__", without_leader_epoch)


@_mend(
    "cleaner-beside-lost-records",
    "storage/test_missing_offsets.py::"
    "test_records_that_are_put_back_are_not_taken_for_leftovers_of_the_cleaner",
)
def _cleaner_beside_lost_records() -> None:
    _patch(missing_filler, "TEMPORARY_SUFFIX", CLEANED_SUFFIX)


@_mend(
    "truncated-below-its-checkpoint",
    "storage/test_truncated_checkpoints.py::test_a_kill_right_after_a_truncation_loses_no_records",
    "storage/test_truncated_checkpoints.py::"
    "test_a_kill_after_a_truncation_between_two_checkpoints_loses_no_records",
    "storage/test_truncated_checkpoints.py::test_a_call_during_a_write_has_the_rest_written_after_it",
)
def _truncated_below_checkpoint() -> None:
    _patch(OffsetCheckpointFile, "lower", _nothing)
    _patch(OffsetCheckpointFile, "_is_requested", property(lambda self: False, _nothing))


@_mend(
    "epoch-of-a-leader-with-a-full-disk",
    "broker/test_replica_manager.py::"
    "test_a_leader_with_a_full_disk_follows_the_next_one_by_the_epochs_of_the_records",
)
def _unwritten_epoch() -> None:
    _patch(LeaderEpochFileCache, "forget_unwritten", _nothing)


# Brokers.


@_mend(
    "replica-kept-after-reassignment",
    "broker/replicas/test_unassigned_replicas.py::test_a_replica_that_others_have_instead_is_set_aside",
    "broker/replicas/test_unassigned_replicas.py::test_a_replica_is_set_aside_after_a_restart_too",
)
def _replica_kept() -> None:
    _patch(RoleChanges, "leave_unassigned", _nothing)


@_mend(
    "deleted-topic-served-on",
    "broker/control_plane/test_controller_requests.py::"
    "test_a_topic_that_a_full_request_does_not_list_is_gone",
)
def _deleted_topic_served_on() -> None:
    async def drop_nothing(self: ControllerRequests, request: Any) -> None:
        del self, request

    _patch(ControllerRequests, "_drop_unlisted", drop_nothing)


@_mend(
    "led-while-a-request-waits",
    "broker/transactions/test_produce_gate.py::"
    "test_a_partition_that_is_led_only_since_the_request_came_is_refused",
    "broker/transactions/test_produce_gate.py::"
    "test_a_partition_that_is_hosted_only_since_the_request_came_is_refused",
)
def _led_while_waiting() -> None:
    find = ProduceGate._find

    def find_led(self: ProduceGate, fields: Any, version: int) -> Any:
        found = find(self, fields, version)
        return None if found is None else found._replace(not_led=[])

    _patch(ProduceGate, "_find", find_led)


@_mend(
    "share-state-created-again",
    "coordinator/share/test_share_shard.py::"
    "test_a_creation_that_is_asked_for_again_keeps_what_members_have_acknowledged",
)
def _share_state_created_again() -> None:
    planted.BUGS["share: creation resets what there is"].plant()


# etcd.


@_mend(
    "etcd-watch-set-again",
    "etcd/test_watches.py::test_a_watch_that_is_set_again_before_the_change_was_reported_is_not_lost",
    "etcd/test_watches.py::test_a_watch_that_is_set_again_is_called_for_changes_that_cancel_out",
)
def _watch_set_again() -> None:
    def arm(table: Any, path: str, callback: Any, armed: Any) -> None:
        table.setdefault(path, {})[callback] = armed

    _patch(EtcdWatches, "_arm", staticmethod(arm))


@_mend(
    "etcd-outdated-number",
    "etcd/test_settlement.py::test_outdated_number_is_asked_again_although_the_connection_is_lost_meanwhile",
)
def _outdated_number() -> None:
    exchange, send, send_again = Requests._exchange, Requests._send, Requests._send_again
    kept: list[Any] = []
    exchanging: set[int] = set()

    async def exchange_first(self: Any, connection: Any, batch: Any) -> Any:
        exchanging.add(id(self))
        try:
            return await exchange(self, connection, batch)
        finally:
            exchanging.discard(id(self))

    def keep(self: Any, calls: Sequence[Any]) -> None:
        if id(self) in exchanging:
            self._sent = None
            kept.extend((self, call) for call in calls)
        else:
            send_again(self, calls)

    async def send_and_hand_out(self: Any, connection: Any, batch: Any) -> None:
        await send(self, connection, batch)
        calls = [call for owner, call in kept if owner is self]
        kept[:] = [each for each in kept if each[0] is not self]
        send_again(self, calls)

    _patch(Requests, "_exchange", exchange_first)
    _patch(Requests, "_send_again", keep)
    _patch(Requests, "_send", send_and_hand_out)


def run_reverted(name: str, schedule: Schedule) -> Outcome:
    """Revert a mend in this process and carry out a schedule."""
    MENDS[name].revert()
    return run(schedule)


def failures(mend: Mend, seeds: int, *, jobs: int = 1) -> Iterator[Outcome]:
    """Yield the outcomes that fail without the mend, of its plan with the seed in it and the next ones."""
    schedule = read_schedule(mend.plan.read_text(), tuple(WORKLOADS))
    drawn = (replace(schedule, seed=schedule.seed + number) for number in range(seeds))
    with contextlib.closing(run_many(drawn, partial(run_reverted, mend.name), jobs=jobs)) as runs:
        for each in runs:
            if each is not None and each[1].violations:
                yield each[1]


class _Failed:
    """Notes the node ids of tests that fail, without their parameters."""

    def __init__(self) -> None:
        self.ids: Final[set[str]] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test whose call failed; pytest calls this."""
        if report.when == "call" and report.failed:
            self.ids.add(report.nodeid.partition("[")[0])


def _run_pytest(arguments: Sequence[str], *plugins: object) -> int:
    # Kalda's plug-in was imported before pytest could rewrite its assertions.
    ignored = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
    return int(pytest.main(["-W", ignored, *arguments], plugins=plugins))


def failing_guards(mend: Mend) -> list[str]:
    """Return which of a mend's tests fail without it. It reverts the mend in a child process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            mend.revert()
            noted = _Failed()
            _run_pytest([*_GUARD_OPTIONS, *(TESTS + each for each in mend.tests)], noted)
            os.write(writer, json.dumps(sorted(noted.ids)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        written = pipe.read()
    os.waitpid(child, 0)
    return [each.removeprefix(TESTS) for each in json.loads(written or b"[]")]


def main() -> None:
    """Run a program without a mend, or print what fails without each."""
    if len(sys.argv) > 2 and sys.argv[1] in MENDS and sys.argv[2] in ("pytest", "simulate"):
        MENDS[sys.argv[1]].revert()
        if sys.argv[2] == "pytest":
            sys.exit(_run_pytest(sys.argv[3:]))
        del sys.argv[1]
        kalda()
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--guards", action="store_true", help="run unit tests and not plans")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=processors())
    arguments = parser.parse_args()
    if arguments.guards:
        print(json.dumps({name: failing_guards(MENDS[name]) for name in arguments.names or MENDS}))
        return
    warm_up()
    is_any_missed = False
    for name in arguments.names or [each.name for each in MENDS.values() if each.plan.exists()]:
        found = sorted(
            failures(MENDS[name], arguments.seeds, jobs=arguments.jobs), key=lambda each: each.seed
        )
        print(f"{name}: {len(found)} of {arguments.seeds} seeds fail", flush=True)
        for each in found[:3]:
            print(f"  seed {each.seed}: {each.violations[0]:.130}", flush=True)
        is_any_missed |= not found
    sys.exit(is_any_missed)


if __name__ == "__main__":
    main()
