"""When a flow looks for topics, and what ends it."""

import threading

import pytest

from kalda.clients.errors import BrokerConnectionError, BrokerResponseError
from kalda.common.backoff import ExponentialBackoff
from kalda.common.errors import ErrorCode
from kalda.pipelines.mirror.mirror import MirrorOptions, MirrorStatistics
from kalda.pipelines.mirror.policy import MirrorError
from kalda.pipelines.mirror_maker2 import flow_run
from kalda.pipelines.mirror_maker2.flow_file import Flow, parse_flows
from kalda.pipelines.mirror_maker2.flow_run import Due, FlowRun
from kalda.records.errors import CorruptRecordError
from tests.runtimes import seeded


def a_flow() -> tuple[Flow, MirrorOptions]:
    flow = parse_flows(
        {
            "clusters": "A,B",
            "A.bootstrap.servers": "127.0.0.1:1",
            "B.bootstrap.servers": "127.0.0.1:1",
            "A->B.enabled": "true",
        }
    ).flows[0]
    assert flow.mirror is not None
    return flow, flow.mirror


def test_what_is_done_in_intervals_is_due_at_once_and_after_each() -> None:
    now = 0.0
    due = Due(10.0, monotonic=lambda: now)
    once = Due(None, monotonic=lambda: now)

    assert (True, True) == (due.is_due(), once.is_due())
    now = 9.0
    assert (False, False) == (due.is_due(), once.is_due())
    now = 10.0
    assert (True, False) == (due.is_due(), once.is_due())


class FailingMirror:
    """A mirror that cannot be opened as often as there are errors."""

    errors: list[Exception]

    def __init__(self, options: MirrorOptions) -> None:
        pass

    def __enter__(self) -> "FailingMirror":
        if self.errors:
            raise self.errors.pop(0)
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def stop(self) -> None:
        pass

    def run_once(self) -> None:
        pass

    def statistics(self) -> MirrorStatistics:
        return MirrorStatistics(records=3, transactions=1)


def run_with(monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> FlowRun:
    monkeypatch.setattr(flow_run, "Mirror", FailingMirror)
    monkeypatch.setattr(flow_run, "BACKOFF", ExponentialBackoff(0, 0, seeded().uniform))
    monkeypatch.setattr(FailingMirror, "errors", list(errors), raising=False)
    run = FlowRun(*a_flow(), is_once=True)
    run.start()
    run._thread.join(30)
    assert not run.is_active
    return run


def test_clusters_that_are_away_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    away = [BrokerConnectionError("away") for _ in range(20)]
    run = run_with(monkeypatch, *away)

    assert run.error is None
    assert ("stopped", 20, 3, None) == (
        run.status.state,
        run.status.restarts,
        run.status.records,
        run.status.error,
    )


def test_what_another_try_repeats_ends_a_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_with(monkeypatch, MirrorError("a circle"))

    assert ("failed", 0, "a circle") == (run.status.state, run.status.restarts, str(run.error))


def test_a_flow_that_runs_once_ends_when_brokers_refuse_the_same_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For example a copy with more replicas than brokers; a cluster that is away is waited for."""
    refusal = BrokerResponseError(ErrorCode.INVALID_REPLICATION_FACTOR, "create topic a")
    away = BrokerConnectionError("away")
    run = run_with(monkeypatch, away, away, refusal, away, refusal, refusal, away)

    assert ("failed", 5, str(refusal)) == (run.status.state, run.status.restarts, str(run.error))


def test_a_batch_that_is_damaged_twice_ends_a_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    """One response can be damaged on its way; what is damaged on disk is so again."""
    first = CorruptRecordError("the CRC of the batch at offset 5 is wrong")
    second = CorruptRecordError("the CRC of the batch at offset 9 is wrong")
    recovered = run_with(monkeypatch, first, second)
    ended = run_with(monkeypatch, first, second, second)

    assert (None, 2) == (recovered.error, recovered.status.restarts)
    assert ("failed", 2, second) == (ended.status.state, ended.status.restarts, ended.error)


def test_a_delivery_that_takes_too_long_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer with a long `delivery.timeout.ms` waits longer than the mirror."""
    run = run_with(monkeypatch, TimeoutError("no result within 180 seconds"))

    assert (None, 1) == (run.error, run.status.restarts)


class BreakingMirror(FailingMirror):
    """A mirror that copies once and then fails."""

    copied = 0

    def look_for_topics(self) -> None:
        pass

    def carry_groups(self) -> None:
        pass

    def copy_next(self) -> bool:
        if self.copied:
            raise self.errors.pop(0)
        self.copied += 1
        return True

    def statistics(self) -> MirrorStatistics:
        return MirrorStatistics(
            records=3 * self.copied, read_bytes=30 * self.copied, transactions=self.copied
        )


def test_what_a_flow_has_done_stays_over_new_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The metrics are counters."""
    monkeypatch.setattr(flow_run, "Mirror", BreakingMirror)
    monkeypatch.setattr(flow_run, "BACKOFF", ExponentialBackoff(0, 0, seeded().uniform))
    errors = [BrokerConnectionError("away"), BrokerConnectionError("away"), MirrorError("ended")]
    monkeypatch.setattr(FailingMirror, "errors", errors, raising=False)
    monkeypatch.setattr(BreakingMirror, "__enter__", lambda mirror: mirror)
    run = FlowRun(*a_flow(), is_once=False)
    run.start()
    run._thread.join(30)

    assert (9, 90, 3) == (run.status.records, run.status.bytes_read, run.status.batches)


def test_a_stop_does_not_wait_for_a_cluster_that_is_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Until both clusters answer there is no transaction that a stop could interrupt."""
    connects, may_go_on = threading.Event(), threading.Event()

    def connect(mirror: FailingMirror) -> FailingMirror:
        connects.set()
        may_go_on.wait(30)
        return mirror

    monkeypatch.setattr(flow_run, "Mirror", FailingMirror)
    monkeypatch.setattr(flow_run, "CONNECTING_STOP_WAIT_S", 0.0)
    monkeypatch.setattr(FailingMirror, "__enter__", connect)
    run = FlowRun(*a_flow(), is_once=True)
    run.start()
    connects.wait(30)
    run.stop(30)

    assert (True, []) == (run.is_active, [each for each in caplog.records if "interrupted" in each.msg])
    may_go_on.set()
    run._thread.join(30)
    assert not run.is_active
