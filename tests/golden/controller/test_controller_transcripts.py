"""Golden transcripts: what happens to a cluster, and all that the controller then does, as readable text.

A transcript is blocks of commands, a line of dashes, and the effects they lead to. To write the effects anew
after a wanted change: ``KALDA_REWRITE_TRANSCRIPTS=1 pytest tests/golden/controller``, then review the diff.
"""

import os
from pathlib import Path

import pytest

from kalda.common.errors import ErrorCode
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
)
from kalda.controller.events import BrokerFellBehind
from kalda.coordination.schema import PartitionState
from tests.unit.controller.simulated_cluster import Simulation, broker

TRANSCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript_is_what_the_controller_does(path: Path) -> None:
    """Each file tells one scenario; a change of behaviour shows as a diff that a person can judge."""
    text = path.read_text()
    played = _play(text)
    if os.environ.get("KALDA_REWRITE_TRANSCRIPTS"):
        path.write_text(played)
    assert played == text


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 8


def _play(text: str) -> str:
    simulation = Simulation()
    blocks: list[str] = []
    for block in text.strip().split("\n\n"):
        commands = [line for line in block.split("\n----", 1)[0].splitlines() if line]
        if all(line.startswith("#") for line in commands):
            blocks.append("\n".join(commands))
            continue
        for line in commands:
            if not line.startswith("#"):
                _do(simulation, line.split())
        effects = _render(simulation.trace)
        simulation.trace.clear()
        blocks.append("\n".join([*commands, "----", *effects]))
    return "\n\n".join(blocks) + "\n"


def _do(simulation: Simulation, words: list[str]) -> None:
    command, *arguments = words
    match command:
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
        case "delete":
            simulation.marked.update(arguments)
            if simulation.epoch:
                simulation.tell_deletions()
        case "answer":
            simulation.answer(code=ErrorCode[arguments[1]] if len(arguments) > 1 else ErrorCode.NONE)
        case "leader-writes" | "leftover":
            fields = dict(argument.split("=") for argument in arguments[1:])
            isr = tuple(map(int, fields["isr"].split(",")))
            topic, _, number = arguments[0].rpartition("-")
            partition = TopicPartition(topic, int(number))
            if command == "leftover":
                simulation.states[partition] = PartitionState(-1, -1, (), 1, version=3)
            simulation.write_state(partition, int(fields["leader"]), int(fields["epoch"]), isr)
        case _:
            raise AssertionError(f"transcripts have no command {command!r}")


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
            return [f"update {p} at version {s.version}: {_state(s)}" for p, s in effect.states.items()]
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
        head += f" live={','.join(str(info.id) for info in request.brokers)}"
        return [head, *(f"  {_leadership(partition)}" for partition in request.partitions)]
    verb = "delete" if request.delete else "stop"
    return [head, *(f"  {verb} {p} epoch={request.leader_epochs[p]}" for p in request.partitions)]


def _state(state: PartitionState) -> str:
    recovering = " recovering" if state.leader_recovering else ""
    return f"leader={state.leader} epoch={state.leader_epoch} isr={_ids(state.isr)}{recovering}"


def _leadership(partition: PartitionLeadership) -> str:
    text = (
        f"{partition.topic_partition} leader={partition.leader} epoch={partition.leader_epoch} "
        f"isr={_ids(partition.isr)} version={partition.partition_epoch} replicas={_ids(partition.replicas)}"
    )
    if partition.offline_replicas:
        text += f" offline={_ids(partition.offline_replicas)}"
    return text + (" new" if partition.is_new else "")


def _ids(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids)) or "-"
