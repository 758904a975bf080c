"""Golden transcripts: what happens to a cluster, and all that the controller then does, as readable text.

A transcript is blocks of commands, a line of dashes, and the effects they lead to. To write the effects anew
after a wanted change: ``KALDA_REWRITE_TRANSCRIPTS=1 pytest tests/golden/controller``, then review the diff.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from kalda.cluster.schema import ListenerEndpoint, PartitionState, ReplicaAssignment
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller.effects import (
    BrokerRequest,
    CreatePartitionStates,
    DeleteTopicZnodes,
    Effect,
    LeaderAndIsr,
    PartitionLeadership,
    RejectTopicDeletion,
    RevisitBrokers,
    Send,
    UpdateMetadata,
    UpdatePartitionStates,
    WriteAssignments,
)
from kalda.controller.events import BrokerFellBehind, DeletionCompletionRequested, ElectionType
from kalda.controller.isr_requests import IsrRequest
from kalda.controller.partition_state_machine import ElectionStrategy
from tests.golden.transcripts import replay
from tests.unit.controller.simulated_cluster import Simulation, broker

TRANSCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript_is_what_the_controller_does(path: Path) -> None:
    """Each file tells one scenario; a change of behaviour shows as a diff that a person can judge."""
    simulation = Simulation()
    text = path.read_text(encoding="utf-8")
    assert text == replay(path, lambda commands: _play(simulation, commands))


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 8


def _play(simulation: Simulation, commands: list[str]) -> list[str]:
    effects: list[str] = []
    for line in commands:
        answers = _do(simulation, line.split())
        effects += [*_render(simulation.trace), *answers]
        simulation.trace.clear()
    return effects


def _do(simulation: Simulation, words: list[str]) -> list[str]:
    """Do what a command says; return the controller's answer to whoever asked."""
    command, *arguments = words
    match command:
        case "reassign" | "legacy-reassign":
            targets = dict(_target(argument) for argument in arguments)
            return _answers(simulation.reassign(targets, must_live=command == "reassign"))
        case "elect-leaders":
            wanted = [_partition(name) for name in arguments[1:]]
            return _answers(simulation.elect_leaders(ElectionType[arguments[0].upper()], wanted))
        case "alter-isr":
            leader, partition = int(arguments[0]), _partition(arguments[1])
            return [f"answer {partition}: {_altered(simulation, leader, partition, arguments[2:])}"]
        case "shutdown":
            led = simulation.shut_down(int(arguments[0]))
            return [f"still led by {arguments[0]}: {' '.join(map(str, led)) or '-'}"]
        case _:
            _happen(simulation, command, arguments)
            return []


def _happen(simulation: Simulation, command: str, arguments: list[str]) -> None:
    match command:
        case "balance":
            simulation.check_balance()
        case "isr-changes":
            simulation.tell_states([_partition(name) for name in arguments])
        case "log-dir-fails":
            simulation.fail_log_dirs(int(arguments[0]), [_partition(name) for name in arguments[1:]])
        case "log-dir-is-full":
            simulation.fill_log_dirs(int(arguments[0]), [_partition(name) for name in arguments[1:]])
        case "log-dir-has-room":
            simulation.empty_log_dirs(int(arguments[0]))
        case "log-dir-works":
            simulation.failed_replicas.pop(int(arguments[0]))
        case "allow-unclean":
            simulation.allow_unclean(dict.fromkeys(arguments, True))
        case "forbid-unclean":
            simulation.allow_unclean(dict.fromkeys(arguments, False))
        case "readdress":
            moved = (ListenerEndpoint("PLAINTEXT", "elsewhere", 9092),)
            broker_id = int(arguments[0])
            simulation.brokers[broker_id] = replace(simulation.brokers[broker_id], endpoints=moved)
            simulation.tell_brokers()
        case "cordon":
            for broker_id in map(int, arguments):
                simulation.brokers[broker_id] = replace(simulation.brokers[broker_id], is_cordoned=True)
            simulation.tell_brokers()
        case "succeeds":
            simulation.controller_id = int(arguments[0])
            simulation.elect()
        case "elect":
            simulation.elect()
        case "brokers":
            pairs = [argument.partition("@") for argument in arguments]
            simulation.brokers = {int(b): broker(int(b), int(epoch or 0)) for b, _, epoch in pairs}
            if simulation.epoch:
                simulation.tell_brokers()
        case "topic":
            simulation.assign(arguments[0], _assignment(arguments[1:]))
            if simulation.epoch:
                simulation.tell_topics()
        case "grow":
            simulation.assign(arguments[0], _assignment(arguments[1:]))
            simulation.tell_assignments()
        case "behind":
            simulation.unanswered = [each for each in simulation.unanswered if each[0] != int(arguments[0])]
            simulation.feed(BrokerFellBehind(int(arguments[0])))
        case "unclean":
            simulation.unclean.update(arguments)
        case "wanted-again":
            simulation.feed(DeletionCompletionRequested(tuple(arguments)))
        case "delete":
            simulation.marked.update(arguments)
            if simulation.epoch:
                simulation.tell_deletions()
        case "answer":
            simulation.answer(code=ErrorCode[arguments[1]] if len(arguments) > 1 else ErrorCode.NONE)
        case "leader-writes" | "leftover":
            fields = dict(argument.split("=") for argument in arguments[1:])
            isr = tuple(map(int, fields["isr"].split(",")))
            partition = _partition(arguments[0])
            if command == "leftover":
                simulation.states[partition] = PartitionState(-1, -1, (), 1, version=3)
            simulation.write_state(partition, int(fields["leader"]), int(fields["epoch"]), isr)
        case _:
            raise AssertionError(f"transcripts have no command {command!r}")


def _altered(simulation: Simulation, leader: int, partition: TopicPartition, arguments: list[str]) -> str:
    """A leader of Apache Kafka asks for another ISR (AlterPartition); return its answer."""
    fields = dict(argument.split("=") for argument in arguments)
    isr = [member.partition("@") for member in fields["isr"].split(",")]
    request = IsrRequest(
        int(fields["epoch"]),
        int(fields["version"]),
        tuple(int(member) for member, _, _ in isr),
        is_leader_recovering=fields.get("recovering") == "yes",
        broker_epochs={int(member): int(epoch) for member, _, epoch in isr if epoch},
    )
    outcome = simulation.alter_isr(leader, partition, request)
    if isinstance(outcome, ErrorCode):
        return outcome.name
    return f"{_state(outcome)} version={outcome.version}"


def _partition(name: str) -> TopicPartition:
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))


def _target(argument: str) -> tuple[TopicPartition, tuple[int, ...] | None]:
    name, _, replicas = argument.partition("=")
    if replicas == "cancel":
        return _partition(name), None
    return _partition(name), tuple(map(int, replicas.split(","))) if replicas else ()


def _answers(outcomes: Mapping[TopicPartition, ApiError | ErrorCode | None]) -> list[str]:
    lines = []
    for partition, outcome in outcomes.items():
        code = outcome.code if isinstance(outcome, ApiError) else outcome or ErrorCode.NONE
        lines.append(f"answer {partition}: {code.name}")
    return lines


def _assignment(arguments: list[str]) -> dict[int, tuple[int, ...]]:
    pairs = [argument.split("=") for argument in arguments]
    return {int(number): tuple(map(int, replicas.split(","))) for number, replicas in pairs}


def _render(effects: list[Effect]) -> list[str]:
    lines: list[str] = []
    receivers: list[str] = []
    for index, effect in enumerate(effects):
        if not isinstance(effect, Send):
            lines += _render_write(effect)
            continue
        receivers.append(str(effect.broker_id))
        following = effects[index + 1] if index + 1 < len(effects) else None
        if isinstance(following, Send) and following.request == effect.request:
            continue
        lines += _render_request(",".join(receivers), effect.request)
        receivers = []
    return lines


def _render_write(effect: Effect) -> list[str]:
    match effect:
        case CreatePartitionStates():
            return [f"create {p}: {_state(s)}" for p, s in effect.states.items()]
        case UpdatePartitionStates():
            why = "" if effect.strategy is ElectionStrategy.OFFLINE else f" ({effect.strategy.value})"
            return [f"update {p} at version {s.version}: {_state(s)}{why}" for p, s in effect.states.items()]
        case WriteAssignments():
            return [f"assign {p}: {_replicas(a)}" for p, a in effect.changes.items()]
        case DeleteTopicZnodes():
            return [f"delete znodes of {' '.join(effect.topics)}"]
        case RejectTopicDeletion():
            return [f"reject deletion of {' '.join(effect.topics)}"]
        case RevisitBrokers():
            return [f"revisit brokers {_ids(tuple(effect.brokers))}"]
        case _:
            raise AssertionError(f"{effect} is no write")


def _render_request(receivers: str, request: BrokerRequest) -> list[str]:
    head = f"to {receivers}: {type(request).__name__} epoch={request.controller_epoch}"
    if isinstance(request, LeaderAndIsr):
        head += " full" if request.is_full else ""
        return [head, *(f"  {_leadership(partition)}" for partition in request.partitions)]
    if isinstance(request, UpdateMetadata):
        head += " full" if request.is_full else ""
        head += f" live={','.join(str(info.id) for info in request.brokers)}"
        return [head, *(f"  {_leadership(partition)}" for partition in request.partitions)]
    verb = "delete" if request.delete else "stop"
    return [head, *(f"  {verb} {p} epoch={request.leader_epochs[p]}" for p in request.partitions)]


def _state(state: PartitionState) -> str:
    recovering = " recovering" if state.leader_recovering else ""
    return f"leader={state.leader} epoch={state.leader_epoch} isr={_ids(state.isr)}{recovering}"


def _replicas(assignment: ReplicaAssignment) -> str:
    text = f"replicas={_ids(assignment.replicas)}"
    if assignment.adding:
        text += f" adding={_ids(assignment.adding)}"
    return text + (f" removing={_ids(assignment.removing)}" if assignment.removing else "")


def _leadership(partition: PartitionLeadership) -> str:
    text = (
        f"{partition.topic_partition} leader={partition.leader} epoch={partition.leader_epoch} "
        f"isr={_ids(partition.isr)} version={partition.partition_epoch} "
    )
    moving = ReplicaAssignment(partition.replicas, partition.adding_replicas, partition.removing_replicas)
    text += _replicas(moving)
    if partition.offline_replicas:
        text += f" offline={_ids(partition.offline_replicas)}"
    return text + (" new" if partition.is_new else "")


def _ids(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids)) or "-"
