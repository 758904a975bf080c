"""What a roll does next: the order, the waits, the doubts, and how a roll goes on after it was killed."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

import pytest

from kalda.tools.migrate.steps_text import event_text
from kalda.tools.migrate.walk import (
    Accepted,
    Began,
    Doubted,
    Ended,
    Entered,
    Event,
    Finish,
    Measured,
    Offsets,
    Phase,
    Plan,
    Progress,
    Record,
    Returned,
    Run,
    Seen,
    Software,
    Swapped,
    Wait,
    next_action,
)
from tests.unit.tools.migrate.model_cluster import ORDERS, PLAN, ModelCluster

KAFKA, KALDA = Software.KAFKA, Software.KALDA
STEPS_MAX = 200


def events_of(
    cluster: ModelCluster, journal: list[Event], target: Software, *, steps: int = STEPS_MAX
) -> Iterator[Event | Run | Wait | Finish]:
    """Run a roll over a journal for some steps at most; yield what it does."""
    event: Event = Began(target)
    journal.append(event)
    yield event
    for _ in range(steps):
        progress = progress_of(journal)
        if progress.has_ended or progress.doubt is not None:
            return
        action = next_action(PLAN, progress, cluster.seen(), waited_seconds=0)
        match action:
            case Record(event):
                journal.append(event)
                yield event
            case Run(_, command, then):
                yield action
                cluster.run(command)
                journal.append(then)
                yield then
            case Wait() | Finish():
                yield action


def progress_of(journal: list[Event]) -> Progress:
    progress = Progress()
    for event in journal:
        progress = progress.after(event)
    return progress


def test_the_transcript_of_a_roll() -> None:
    lines = [
        event_text(PLAN, KALDA, each)
        for each in events_of(ModelCluster(), [], KALDA)
        if not isinstance(each, Finish)
    ]
    assert [
        "Roll to Kalda of 3 brokers.",
        "  before: 1 partition whose ends add up to 10, 1 group",
        "Broker 2: from Apache Kafka to Kalda (to go back: stop kalda 2; start kafka 2)",
        "  $ stop kafka 2",
        "  $ start kalda 2",
        "  broker 2 is back with Kalda",
        "Broker 2 runs Kalda; all replicas are in sync, no offset is lower.",
        "  before: 1 partition whose ends add up to 12, 1 group",
        "Broker 3: from Apache Kafka to Kalda (to go back: stop kalda 3; start kafka 3)",
        "  $ stop kafka 3",
        "  $ start kalda 3",
        "  broker 3 is back with Kalda",
        "Broker 3 runs Kalda; all replicas are in sync, no offset is lower.",
        "  before: 1 partition whose ends add up to 14, 1 group",
        "Broker 1: from Apache Kafka to Kalda (to go back: stop kalda 1; start kafka 1)",
        "  $ stop kafka 1",
        "  $ start kalda 1",
        "  broker 1 is back with Kalda",
        "Broker 1 runs Kalda; all replicas are in sync, no offset is lower.",
        "All brokers of the plan run Kalda.",
    ] == [line for line in lines if line is not None]


def test_the_controller_is_last_unless_the_plan_says_otherwise() -> None:
    cluster = ModelCluster()
    assert Entered(2, Phase.STOP) in [*events_of(cluster, [], KALDA, steps=2)]
    as_written = replace(PLAN, controller_last=False)
    progress = progress_of([Began(KALDA), Measured(cluster.seen().offsets)])
    action = next_action(as_written, progress, cluster.seen(), waited_seconds=0)
    assert Record(Entered(1, Phase.STOP)) == action


@pytest.mark.parametrize("loses_record", [False, True], ids=["between two steps", "behind a command"])
@pytest.mark.parametrize("end", [KALDA, KAFKA])
def test_a_roll_that_is_killed_at_any_step_goes_on_or_turns_back(end: Software, loses_record: bool) -> None:
    """Behind a command, the journal does not have yet that it ran: it runs again."""
    for steps in count():
        cluster, journal = ModelCluster(), list[Event]()
        done = [*events_of(cluster, journal, KALDA, steps=steps)]
        if isinstance(done[-1], Ended):
            return
        if loses_record and isinstance(journal[-1], Entered):
            journal.pop()
        rest = [*events_of(cluster, journal, end)]
        assert Ended() == rest[-1], steps
        assert dict.fromkeys((1, 2, 3), end) == cluster.brokers, steps


def test_going_back_touches_only_brokers_that_were_swapped() -> None:
    cluster, journal = ModelCluster(), list[Event]()
    for each in events_of(cluster, journal, KALDA):
        if each == Swapped(2):
            break
    cluster.commands.clear()
    [*events_of(cluster, journal, KAFKA)]
    assert ["stop kalda 2", "start kafka 2"] == cluster.commands


SETTLING = Progress(
    target=KALDA,
    current=Entered(2, Phase.SETTLE),
    measured=Offsets({ORDERS: 10}, {"readers": {ORDERS: 5}}),
)


def settled(**changes: object) -> Seen:
    cluster = ModelCluster()
    cluster.brokers[2] = KALDA
    return replace(cluster.seen(), **changes)  # type: ignore[arg-type]  # the fields of a test's case


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (settled(isr={ORDERS: (1, 3)}), "partitions whose replicas are not all in sync: orders-0"),
        (settled(leaderless=frozenset({ORDERS})), "partitions without a leader: orders-0"),
        (settled(restless_groups=["readers"]), "groups that rebalance: readers"),
        (settled(controller_id=None), "there is no controller"),
        (settled(brokers={1: KAFKA, 2: KALDA}), "brokers that the cluster does not list: 3"),
        (
            settled(offsets=Offsets({ORDERS: 9}, {"readers": {ORDERS: 5}})),
            "orders-0 ended at 10 and ends at 9 now",
        ),
        (
            settled(offsets=Offsets({}, {"readers": {ORDERS: 5}})),
            "orders-0 ended at 10 and does not say now where it ends",
        ),
        (
            settled(offsets=Offsets({ORDERS: 10}, {"readers": {ORDERS: 4}})),
            "group readers had committed 5 of orders-0 and has 4 now",
        ),
        (
            settled(offsets=Offsets({ORDERS: 10}, {})),
            "group readers had committed 5 of orders-0 and has no offset now",
        ),
    ],
)
def test_a_broker_settles_only_in_a_cluster_that_is_as_before(seen: Seen, reason: str) -> None:
    assert Wait((reason,)) == next_action(PLAN, SETTLING, seen, waited_seconds=99)
    late = next_action(PLAN, SETTLING, seen, waited_seconds=100)
    assert Record(Doubted(f"after 100 s: {reason}")) == late


def test_a_settled_broker_is_swapped() -> None:
    assert Record(Swapped(2)) == next_action(PLAN, SETTLING, settled(), waited_seconds=0)


def refused(change: Callable[[Seen], Seen], target: Software = KALDA, plan: Plan = PLAN) -> str | None:
    """Return the doubt before the first broker is touched."""
    progress = progress_of([Began(target)])
    cluster = ModelCluster(target.other)
    action = next_action(plan, progress, change(cluster.seen()), waited_seconds=0)
    return action.event.reason if isinstance(action, Record) and isinstance(action.event, Doubted) else None


def test_a_broker_with_the_only_replica_is_not_touched_unless_the_plan_accepts_it() -> None:
    def single(seen: Seen) -> Seen:
        return replace(seen, partitions={ORDERS: (2,)}, isr={ORDERS: (2,)})

    assert "broker 2 has the only replica of orders-0" in (refused(single) or "")
    accepting = replace(PLAN, accept=frozenset({Accepted.SINGLE_REPLICAS}))
    assert refused(single, plan=accepting) is None


def test_a_broker_that_in_sync_replicas_need_is_not_touched_unless_the_plan_accepts_it() -> None:
    def tight(seen: Seen) -> Seen:
        return replace(seen, min_in_sync={"orders": 3})

    assert "fewer replicas than `min.insync.replicas`" in (refused(tight) or "")
    accepting = replace(PLAN, accept=frozenset({Accepted.MIN_INSYNC_REPLICAS}))
    assert refused(tight, plan=accepting) is None


def test_kafka_does_not_come_back_to_groups_that_it_does_not_serve() -> None:
    def newer(seen: Seen) -> Seen:
        return replace(seen, newer_groups=["readers"])

    assert "does not serve: readers" in (refused(newer, KAFKA) or "")
    assert refused(newer, KALDA) is None


def test_another_cluster_than_the_plans_is_a_doubt() -> None:
    action = next_action(PLAN, SETTLING, settled(cluster_id="other"), waited_seconds=0)
    assert Record(Doubted("the brokers are of cluster other, the plan is for c")) == action


def test_a_supervisor_that_starts_the_old_software_again_is_a_doubt() -> None:
    cluster = ModelCluster()
    starting = Progress(target=KALDA, current=Entered(2, Phase.START))
    action = next_action(PLAN, starting, cluster.seen(), waited_seconds=0)
    assert isinstance(action, Record)
    assert isinstance(action.event, Doubted)
    assert "keep its supervisor from starting it" in action.event.reason


def test_a_broker_that_does_not_say_yet_what_it_is_is_waited_for() -> None:
    seen = replace(ModelCluster().seen(), brokers={1: KAFKA, 2: None, 3: KAFKA})
    back = Progress(target=KALDA, current=Entered(2, Phase.BACK))
    action = next_action(PLAN, back, seen, waited_seconds=0)
    assert Wait(("Kalda was started as broker 2, which does not say yet what it is",)) == action


def test_a_run_for_some_brokers_ends_and_the_roll_does_not() -> None:
    cluster, progress = ModelCluster(), progress_of([Began(KALDA), Swapped(3)])
    cluster.brokers[3] = KALDA
    action = next_action(PLAN, progress, cluster.seen(), waited_seconds=0, only=frozenset({3}))
    assert Finish() == action


def test_a_broker_that_its_operator_took_back_by_hand_is_swapped_again() -> None:
    cluster, journal = ModelCluster(), list[Event]()
    for each in events_of(cluster, journal, KALDA):
        if each == Swapped(2):
            break
    cluster.brokers[2] = KAFKA
    cluster.commands.clear()
    rest = [*events_of(cluster, journal, KALDA)]
    assert Returned(2) in rest
    assert dict.fromkeys((1, 2, 3), KALDA) == cluster.brokers
    assert "start kalda 2" in cluster.commands


def test_a_doubt_is_over_when_the_next_run_begins() -> None:
    journal: list[Event] = [Began(KALDA), Entered(2, Phase.GONE), Doubted("why")]
    assert "why" == progress_of(journal).doubt
    journal.append(Began(KALDA))
    assert progress_of(journal).doubt is None


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        (Phase.STOP, Phase.STOP),
        (Phase.GONE, Phase.STOP),
        (Phase.START, Phase.START),
        (Phase.BACK, Phase.START),
        (Phase.SETTLE, Phase.START),
    ],
)
def test_a_new_run_repeats_the_command_that_had_no_effect(phase: Phase, expected: Phase) -> None:
    """A unit that was started and ended at once is started again when its settings are mended."""
    progress = progress_of([Began(KALDA), Entered(2, phase), Began(KALDA)])
    assert Entered(2, expected) == progress.current


def test_a_metadata_that_lacks_partitions_is_not_measured_as_if_they_were_gone() -> None:
    """A broker that has just started may answer before it has the metadata of the cluster."""
    cluster = ModelCluster()
    progress = progress_of(
        [Began(KALDA), Measured(cluster.seen().offsets), Entered(2, Phase.STOP), Swapped(2)]
    )
    empty = replace(cluster.seen(), partitions={}, isr={}, offsets=Offsets())
    cluster.brokers[2] = KALDA
    action = next_action(PLAN, progress, empty, waited_seconds=0)
    assert isinstance(action, Wait)
    assert Record(Measured(cluster.seen().offsets)) == next_action(
        PLAN, progress, cluster.seen(), waited_seconds=0
    )


def test_a_new_run_does_not_compare_with_the_offsets_of_another_day() -> None:
    journal: list[Event] = [Began(KALDA), Measured(Offsets({ORDERS: 99})), Swapped(2), Began(KALDA)]
    assert progress_of(journal).measured is None
    journal[2:2] = [Entered(2, Phase.GONE)]
    del journal[3]
    assert Offsets({ORDERS: 99}) == progress_of(journal).measured
