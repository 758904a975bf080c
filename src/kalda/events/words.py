"""Says in one sentence what each event was, what supports it, and which command shows more. Sans-IO."""

import shlex
from collections.abc import Callable, Mapping
from typing import Final

from kalda.common.log_text import counted
from kalda.events.event import CausalEvent, EventKind

Words = Callable[[CausalEvent], str]


def sentence(event: CausalEvent) -> str:
    """Return a sentence that describes an event; an unknown kind is shown with its details."""
    words = _SENTENCES.get(event.kind)
    if words is not None:
        return words(event)
    subject = ", ".join(f"{key} {value}" for key, value in event.subject.items())
    details = ", ".join(f"{key} {value}" for key, value in event.details.items())
    return f"{event.kind} ({subject}){': ' if details else ''}{details}."


def unexplained(event: CausalEvent, *, is_silent: bool) -> str:
    """Return what can be said of the cause of an event that has none, behind its sentence."""
    if event.kind != EventKind.BROKER_LEFT:
        return ""
    if is_silent:
        return (
            " It announced no shutdown and does not answer: it was killed, it crashed, or it is cut off. Its "
            "own events say more once it runs."
        )
    return " It announced no shutdown."


def commands(event: CausalEvent) -> tuple[str, ...]:
    """Return the commands to run next when an event is the first cause, the most useful one first."""
    words = _COMMANDS.get(event.kind)
    return () if words is None else words(event)


def evidence(event: CausalEvent) -> str:
    """Return the details of an event as ``key=value``, for a reader who checks the sentence."""
    parts = [f"{key}={_short(value)}" for key, value in event.details.items() if key != "partitions"]
    return " ".join([f"event {event.id}", event.kind, *parts])


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _reason(event: CausalEvent) -> str:
    """Return why, without the full stop that texts of clients end in."""
    return event.text("reason").rstrip(".")


def _broker(event: CausalEvent) -> str:
    return f"broker {event.subject.get('broker', event.id.broker_id)}"


def _numbers(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers)) or "none"


def _started(event: CausalEvent) -> str:
    if event.details.get("is_first"):
        return f"{_cap(_broker(event))} started for the first time."
    if event.details.get("is_clean"):
        return f"{_cap(_broker(event))} started after a clean shutdown."
    return (
        f"{_cap(_broker(event))} had ended without a shutdown: it was killed, it crashed, or its machine "
        "did. Its next start found logs that were not closed."
    )


def _leader_changed(event: CausalEvent) -> str:
    before, leader = event.number("leader_before"), event.number("leader")
    topic = event.subject.get("topic", "?")
    count = _count_of_partitions(event)
    if leader == -1:
        return (
            f"{_cap(count)} of topic {topic} lost the leader, broker {before}: no in-sync replica was live "
            f"(in-sync replicas: {_numbers(event.numbers('isr'))})."
        )
    unclean = " It was not in sync: records may be lost." if event.details.get("is_unclean") else ""
    origin = "after a time without a leader" if before == -1 else f"instead of broker {before}"
    return f"The controller made broker {leader} the leader of {count} of topic {topic}, {origin}.{unclean}"


def _isr_changed(event: CausalEvent) -> str:
    before, after = event.numbers("isr_before"), event.numbers("isr")
    removed = tuple(each for each in before if each not in after)
    added = tuple(each for each in after if each not in before)
    topic = event.subject.get("topic", "?")
    what = f"the in-sync replicas of {_count_of_partitions(event)} of topic {topic}"
    if added and not removed:
        return f"Broker {_numbers(added)} caught up and joined {what}, now {_numbers(after)}."
    who = (
        "The controller" if event.text("by") == "controller" else f"The leader, broker {event.id.broker_id},"
    )
    return f"{who} removed broker {_numbers(removed)} from {what}, now {_numbers(after)}.{_lag(event)}"


def _lag(event: CausalEvent) -> str:
    listed = event.details.get("lagging")
    if not isinstance(listed, list) or not listed or not isinstance(listed[0], Mapping):
        return ""
    lag = listed[0]
    seconds, records = lag.get("fetched_s"), lag.get("records")
    if not isinstance(seconds, (int, float)):
        return " It has not fetched at all."
    behind = (
        f"{counted(records, 'record')} behind"
        if isinstance(records, int) and records
        else "at the end of the log"
    )
    return f" It last fetched {seconds:g} s before, {behind}."


def _count_of_partitions(event: CausalEvent) -> str:
    listed = event.details.get("partitions")
    numbers = (
        [each[0] for each in listed if isinstance(each, list) and each] if isinstance(listed, list) else []
    )
    if len(numbers) == 1:
        return f"partition {numbers[0]}"
    if len(numbers) <= 6:
        return f"partitions {', '.join(map(str, numbers))}"
    return f"{len(numbers)} partitions"


def _left(event: CausalEvent) -> str:
    controller = "The new controller" if event.text("at") == "election" else "The controller"
    return f"{controller} noticed that broker {event.subject.get('broker')} was no longer registered."


def _joined(event: CausalEvent) -> str:
    if event.number("broker_epoch_before") >= 0:
        return f"The controller noticed that {_broker(event)} had registered again."
    return f"The controller noticed that {_broker(event)} had registered."


def _session_expired(event: CausalEvent) -> str:
    seconds = event.details.get("seconds")
    gap = (
        f" after {seconds:g} s without a connection" if isinstance(seconds, (int, float)) and seconds else ""
    )
    return f"The coordination session of {_broker(event)} expired{gap}, and with it its registration."


_ELECTIONS: Final = {
    "unclean": "An operator asked for an unclean election.",
    "preferred": "An operator asked for the election of preferred leaders.",
    "balance": "The controller moved leaderships back to preferred replicas (auto.leader.rebalance.enable).",
    "unclean-allowed": "unclean.leader.election.enable changed, so that a replica out of sync may lead.",
}


def _moves(event: CausalEvent) -> str:
    if "topic" not in event.subject:
        return "partitions to other brokers"
    what = f"{_count_of_partitions(event)} of topic {_of(event, 'topic')}"
    replicas = event.numbers("replicas")
    to = f" to {'broker' if len(replicas) == 1 else 'brokers'} {_numbers(replicas)}" if replicas else ""
    adding, removing = event.numbers("adding"), event.numbers("removing")
    if not adding and not removing:
        return f"{what} no further, or to other places among its replicas"
    return f"{what}{to} (adding {_numbers(adding)}, removing {_numbers(removing)})"


def _quota(event: CausalEvent) -> str:
    changes = event.details.get("changes")
    if not isinstance(changes, Mapping):
        return event.text("changes")
    return ", ".join(
        f"{key} removed" if value is None else f"{key}={value}" for key, value in changes.items()
    )


def _cap(text: str) -> str:
    return text[:1].upper() + text[1:]


def _of(event: CausalEvent, key: str) -> str:
    return str(event.subject.get(key, "?"))


def _partition(event: CausalEvent) -> str:
    return f"{_of(event, 'topic')}-{_of(event, 'partition')}"


def _value(event: CausalEvent, key: str) -> str:
    """Return a name as one word of a shell's line: clients choose names, and operators copy the line."""
    return shlex.quote(_of(event, key))


def _argument(event: CausalEvent, key: str) -> str:
    """Return a name as an argument of a command, which is no option whatever it begins with."""
    value = _value(event, key)
    return f"-- {value}" if value.startswith("-") else value


def _offsets(event: CausalEvent) -> str:
    return f"offsets {event.number('from')} to {event.number('to') - 1} of {_partition(event)}"


def _by(event: CausalEvent) -> str:
    """Return who asked for a change, behind the change; empty where the broker does not know it."""
    user = event.text("by_user")
    if not user:
        return ""
    return f", by {user} (client id {event.text('by_client') or 'none'}, at {event.text('by_host')})"


def _client(event: CausalEvent) -> str:
    return f"client id {_of(event, 'client') or 'none'} of user {_of(event, 'user')}"


def _deleted(event: CausalEvent) -> str:
    reason = _reason(event)
    if reason == "delete-records":
        return f"A client deleted {_offsets(event)} by a DeleteRecords request{_by(event)}."
    return f"Retention of {_broker(event)} deleted {_offsets(event)}: {reason}."


def _member(event: CausalEvent) -> str:
    client = _of(event, "client")
    host = event.text("host")
    return f"member {_of(event, 'member')} (client id {client or 'none'}{', at ' + host if host else ''})"


def _poll_hint(event: CausalEvent) -> str:
    """Return what the text means that clients of Java and Kalda leave with when they process for too long."""
    if "poll timeout has expired" not in event.text("reason"):
        return ""
    return "; it did not call poll() within its max.poll.interval.ms"


def _alert(event: CausalEvent) -> str:
    """Return what a TLS alert means that the client sent before it closed the connection."""
    reason = event.text("reason").replace("_", " ").lower()
    return next((f": {meaning}" for alert, meaning in _ALERTS.items() if alert in reason), "")


_ALERTS: Final = {
    "alert unknown ca": "the client does not trust the authority of the broker's certificate",
    "alert certificate expired": "the client found that the broker's certificate has expired",
    "alert bad certificate": "the client does not accept the broker's certificate",
    "alert certificate unknown": "the client does not accept the broker's certificate",
}


def _broker_end(event: CausalEvent) -> str:
    return " No log directory was left, so the broker ended." if event.details.get("has_ended_broker") else ""


def _times(event: CausalEvent) -> str:
    times = event.number("times")
    return f" {times} more of these followed within a minute." if times > 0 else ""


def _producer(event: CausalEvent) -> str:
    name = event.subject.get("transactional_id")
    number = event.subject.get("producer")
    if name is not None:
        return f'the producer of transactional id "{name}"'
    return f"producer {number}"


def _aborted(event: CausalEvent) -> str:
    reason = _reason(event)
    if reason == "time-out":
        reason = f"it was open for longer than transaction.timeout.ms={event.number('timeout_ms')}"
    name = _of(event, "transactional_id")
    return f'The transaction of transactional id "{name}" was aborted: {reason}{_by(event)}.'


def _refused_producer(event: CausalEvent) -> str:
    at = f" for {_partition(event)}" if "topic" in event.subject else ""
    epoch = event.text("producer_epoch")
    client = f" of {_client(event)}" if "client" in event.subject else ""
    return (
        f"{_cap(_producer(event))}{client} with epoch {epoch or 'unknown'} was refused{at}: "
        f"{_reason(event)} ({event.text('request')}).{_times(event)}"
    )


def _throttled(event: CausalEvent) -> str:
    return (
        f"The client with {_client(event)} used more than its quota {_reason(event)} and had to wait "
        f"{event.text('seconds')} s.{_times(event)}"
    )


def _refused_records(event: CausalEvent) -> str:
    text = event.text("text").rstrip(".")
    return (
        f"Broker {event.id.broker_id} refused records for {_partition(event)} of the client with "
        f"{_client(event)}: {_reason(event)}{': ' + text if text else ''}.{_times(event)}"
    )


def _deleted_offsets(event: CausalEvent) -> str:
    topic = event.subject.get("topic")
    count = event.number("partitions_count")
    of_topic = "" if topic is None else f" in {counted(count, 'partition')} of topic {topic}"
    return (
        f"The committed offsets of group {_of(event, 'group')}{of_topic} were deleted: "
        f"{_reason(event)}{_by(event)}."
    )


def _reset_offsets(event: CausalEvent) -> str:
    listed = event.details.get("offsets")
    changes = [
        f"partition {each[0]} {f'from {each[1]} ' if each[1] != -1 else ''}to {each[2]}"
        for each in (listed if isinstance(listed, list) else ())
        if isinstance(each, list) and len(each) == 3
    ]
    others = event.number("partitions_count") - len(changes)
    if others > 0:
        changes.append(f"{others} more")
    return (
        f"Offsets of group {_of(event, 'group')} in topic {_of(event, 'topic')} were reset: "
        f"{', '.join(changes)}{_by(event)}.{_times(event)}"
    )


_SENTENCES: Final[Mapping[str, Words]] = {
    EventKind.PROCESS_STALLED: lambda event: (
        f"{_cap(_broker(event))} stood still for {event.text('seconds')} s: its process was stopped, or its "
        "machine was short of memory or processor time."
    ),
    EventKind.CLOCK_CHANGED: lambda event: (
        f"The clock of {_broker(event)} went {'back' if event.number('milliseconds') < 0 else 'forward'} by "
        f"{abs(event.number('milliseconds')) / 1000:g} s: it was set, or its machine was suspended. The "
        "times of its events and of records went with it."
    ),
    EventKind.SLOW_SYNC: lambda event: (
        f"A sync to the disk of {_broker(event)} took {event.text('seconds')} s in {_reason(event)}."
        f"{_times(event)}"
    ),
    EventKind.DIRECTORY_FAILED: lambda event: (
        f"Log directory {event.text('directory')} of {_broker(event)} failed: {_reason(event)}."
        f"{_broker_end(event)}"
    ),
    EventKind.DIRECTORY_FULL: lambda event: (
        f"Log directory {event.text('directory')} of {_broker(event)} is full: {_reason(event)}."
    ),
    EventKind.DIRECTORY_RECOVERED: lambda event: (
        f"Log directory {event.text('directory')} of {_broker(event)} has room again."
    ),
    EventKind.REPLICATION_FAILED: lambda event: (
        f"{_cap(_broker(event))} could not fetch from the leader, broker {event.text('leader')}: "
        f"{_reason(event)}.{_times(event)}"
    ),
    EventKind.TOPIC_CREATED: lambda event: (
        f"Topic {_of(event, 'topic')} was created with "
        f"{counted(event.number('partitions_count'), 'partition')}."
    ),
    EventKind.TOPIC_DELETED: lambda event: f"Topic {_of(event, 'topic')} was deleted.",
    EventKind.RECORDS_DELETED: _deleted,
    EventKind.RECORDS_TRUNCATED: lambda event: (
        f"{_cap(_broker(event))} cut off {_offsets(event)}, which the leader does not have."
    ),
    EventKind.RECORDS_COMPACTED: lambda event: (
        f"Compaction kept {event.text('records')} of {counted(event.number('records_before'), 'record')} "
        f"among {_offsets(event)}: newer records have the same keys."
    ),
    EventKind.GROUP_REBALANCING: lambda event: (
        f"Group {_of(event, 'group')} began to rebalance: {_reason(event)}."
    ),
    EventKind.GROUP_STABLE: lambda event: (
        f"Group {_of(event, 'group')} is stable in generation {event.text('generation')} with "
        f"{counted(event.number('members'), 'member')}."
    ),
    EventKind.MEMBER_JOINED: lambda event: (
        f"{_cap(_member(event))} joined group {_of(event, 'group')}: {_reason(event)}."
    ),
    EventKind.MEMBER_LEFT: lambda event: (
        f"{_cap(_member(event))} left group {_of(event, 'group')}: {_reason(event)}{_poll_hint(event)}."
    ),
    EventKind.MEMBER_FAILED: lambda event: (
        f"{_cap(_member(event))} was removed from group {_of(event, 'group')}: {_reason(event)}."
    ),
    EventKind.MEMBER_REPLACED: lambda event: (
        f"{_cap(_member(event))} of group {_of(event, 'group')} was replaced: {_reason(event)}. If it still "
        "runs, it gets FENCED_INSTANCE_ID."
    ),
    EventKind.MEMBER_REFUSED: lambda event: (
        f"A member with client id {_of(event, 'client') or 'none'} at {event.text('host')} could not join "
        f"group {_of(event, 'group')}: {_reason(event)}.{_times(event)}"
    ),
    EventKind.OFFSETS_DELETED: _deleted_offsets,
    EventKind.OFFSETS_RESET: _reset_offsets,
    EventKind.PRODUCER_FENCED: lambda event: (
        f"{_cap(_producer(event))} got epoch {event.text('producer_epoch')}, which fences those before: "
        f"{_reason(event)}{_by(event)}."
    ),
    EventKind.PRODUCER_REFUSED: _refused_producer,
    EventKind.RECORDS_REFUSED: _refused_records,
    EventKind.TRANSACTION_ABORTED: _aborted,
    EventKind.CLIENT_THROTTLED: _throttled,
    EventKind.QUOTA_CHANGED: lambda event: (
        f"A quota of {', '.join(f'{key} {name}' for key, name in event.subject.items())} was set: "
        f"{_quota(event)}{_by(event)}."
    ),
    EventKind.CONFIG_CHANGED: lambda event: (
        f"Settings of {event.text('entity')} were changed: {event.text('changes')}{_by(event)}."
    ),
    EventKind.CONNECTION_REFUSED: lambda event: (
        f"Broker {event.id.broker_id} refused connections"
        f"{' from ' + str(event.subject['host']) if 'host' in event.subject else ''}: {_reason(event)}."
        f"{_times(event)}"
    ),
    EventKind.LOGIN_FAILED: lambda event: (
        f"A login from {_of(event, 'host')} on listener {event.text('listener')} of broker "
        f"{event.id.broker_id} failed: {_reason(event)}{_alert(event)}.{_times(event)}"
    ),
    EventKind.ACCESS_DENIED: lambda event: (
        f"User {_of(event, 'user')} from {_of(event, 'host')} was denied {_reason(event)}.{_times(event)}"
    ),
    EventKind.BROKER_STARTED: _started,
    EventKind.BROKER_STOPPED: lambda event: f"{_cap(_broker(event))} was shut down.",
    EventKind.SESSION_LOST: lambda event: f"{_cap(_broker(event))} lost its connection to coordination.",
    EventKind.SESSION_RESTORED: lambda event: (
        f"{_cap(_broker(event))} reached coordination again after {event.text('seconds')} s."
    ),
    EventKind.SESSION_EXPIRED: _session_expired,
    EventKind.BROKER_REGISTERED: lambda event: (
        f"{_cap(_broker(event))} registered with broker epoch {event.text('broker_epoch')}."
    ),
    EventKind.BROKER_JOINED: _joined,
    EventKind.BROKER_LEFT: _left,
    EventKind.CONTROLLER_ELECTED: lambda event: (
        f"{_cap(_broker(event))} became controller with epoch {event.text('controller_epoch')}."
    ),
    EventKind.CONTROLLED_SHUTDOWN: lambda event: (
        f"The controller moved leaderships off {_broker(event)}, which was shutting down."
    ),
    EventKind.ELECTION_REQUESTED: lambda event: (
        _ELECTIONS.get(_reason(event), f"An election was requested: {_reason(event)}").rstrip(".")
        + f"{_by(event)}."
    ),
    EventKind.REASSIGNMENT_REQUESTED: lambda event: f"An operator asked to move {_moves(event)}{_by(event)}.",
    EventKind.REPLICAS_REFUSED: lambda event: (
        f"{_cap(_broker(event))} could not serve its replicas: {_reason(event)}."
    ),
    EventKind.LEADER_CHANGED: _leader_changed,
    EventKind.ISR_CHANGED: _isr_changed,
    EventKind.EVENTS_DROPPED: lambda event: (
        f"{_cap(_broker(event))} had more events than it keeps: {event.text('times')} are missing."
    ),
}


def _history(event: CausalEvent) -> tuple[str, ...]:
    return (f"kalda cluster history topic {_argument(event, 'topic')}",)


def _members(event: CausalEvent) -> tuple[str, ...]:
    return (f"kalda groups describe --members {_argument(event, 'group')}",)


def _broker_commands(event: CausalEvent) -> tuple[str, ...]:
    return f"kalda why broker {_argument(event, 'broker')}", "kalda doctor"


_COMMANDS: Final[Mapping[str, Callable[[CausalEvent], tuple[str, ...]]]] = {
    EventKind.PROCESS_STALLED: _broker_commands,
    EventKind.CLOCK_CHANGED: lambda _: ("kalda doctor",),
    EventKind.DIRECTORY_FAILED: lambda _: ("kalda log-dirs describe --summary",),
    EventKind.DIRECTORY_FULL: lambda _: ("kalda log-dirs describe --summary",),
    EventKind.SLOW_SYNC: lambda _: ("kalda log-dirs describe --summary",),
    EventKind.REPLICATION_FAILED: lambda event: (f"kalda why broker {shlex.quote(event.text('leader'))}",),
    EventKind.RECORDS_DELETED: lambda event: (
        (f"kalda acls list --topic {_value(event, 'topic')}",)
        if _reason(event) == "delete-records"
        else (f"kalda configs describe --topic {_value(event, 'topic')}",)
    ),
    EventKind.RECORDS_COMPACTED: lambda event: (f"kalda configs describe --topic {_value(event, 'topic')}",),
    EventKind.CONFIG_CHANGED: lambda event: (
        (f"kalda configs describe --topic {_value(event, 'topic')}", *_history(event))
        if "topic" in event.subject
        else ("kalda cluster history broker-config",)
    ),
    EventKind.TOPIC_CREATED: _history,
    EventKind.TOPIC_DELETED: _history,
    EventKind.LEADER_CHANGED: _history,
    EventKind.ISR_CHANGED: _history,
    EventKind.ELECTION_REQUESTED: lambda _: ("kalda cluster history election",),
    EventKind.REASSIGNMENT_REQUESTED: lambda _: (
        "kalda reassign list",
        "kalda cluster history reassignment",
    ),
    EventKind.CONTROLLER_ELECTED: lambda _: ("kalda cluster history controller",),
    EventKind.RECORDS_REFUSED: lambda event: (
        f"kalda why partition {shlex.quote(_partition(event))}",
        f"kalda configs describe --all --topic {_value(event, 'topic')}",
    ),
    EventKind.LOGIN_FAILED: lambda event: (
        ("kalda users list",) if event.text("reason").startswith(("SCRAM", "PLAIN")) else ("kalda doctor",)
    ),
    EventKind.CONNECTION_REFUSED: lambda event: (
        f"kalda configs describe --all --broker {event.id.broker_id}",
    ),
    EventKind.OFFSETS_RESET: lambda event: (f"kalda groups describe {_argument(event, 'group')}",),
    EventKind.OFFSETS_DELETED: lambda event: (
        *((f"kalda why topic {_argument(event, 'topic')}",) if "topic" in event.subject else ()),
        f"kalda groups describe {_argument(event, 'group')}",
    ),
    EventKind.MEMBER_REPLACED: _members,
    EventKind.MEMBER_REFUSED: _members,
    EventKind.PRODUCER_FENCED: lambda event: (
        f"kalda transactions describe {_argument(event, 'transactional_id')}",
    ),
    EventKind.PRODUCER_REFUSED: lambda event: (
        (f"kalda transactions describe {_argument(event, 'transactional_id')}",)
        if "transactional_id" in event.subject
        else (f"kalda why producer {_argument(event, 'producer')}",)
    ),
    EventKind.GROUP_REBALANCING: lambda event: (f"kalda groups describe {_argument(event, 'group')}",),
    EventKind.MEMBER_FAILED: lambda event: (f"kalda groups describe {_argument(event, 'group')}",),
    EventKind.MEMBER_LEFT: lambda event: (f"kalda groups describe {_argument(event, 'group')}",),
    EventKind.MEMBER_JOINED: lambda event: (f"kalda groups describe {_argument(event, 'group')}",),
    EventKind.TRANSACTION_ABORTED: lambda event: (
        f"kalda transactions describe {_argument(event, 'transactional_id')}",
    ),
    EventKind.CLIENT_THROTTLED: lambda _: ("kalda quotas list",),
    EventKind.QUOTA_CHANGED: lambda _: ("kalda quotas list",),
    EventKind.ACCESS_DENIED: lambda _: ("kalda acls list",),
    EventKind.BROKER_STARTED: _broker_commands,
    EventKind.BROKER_STOPPED: _broker_commands,
    EventKind.BROKER_LEFT: _broker_commands,
    EventKind.CONTROLLED_SHUTDOWN: _broker_commands,
    EventKind.SESSION_EXPIRED: _broker_commands,
    EventKind.SESSION_LOST: _broker_commands,
}
