"""Golden transcripts: what members of a classic group ask, and what they are told, as readable text.

A transcript is blocks of commands, a line of dashes, and what follows from them: answers, records, the state.
After a wanted change ``KALDA_REWRITE_TRANSCRIPTS=1 pytest tests/golden/coordinator`` writes that anew; then
review the diff.
"""

from pathlib import Path
from typing import Any

import pytest

from kalda.common.errors import ErrorCode
from kalda.coordinator.group.classic.classic_group import read_group_metadata_value
from kalda.records.record import iter_records
from tests.golden.transcripts import replay
from tests.unit.coordinator.group.group_simulation import GroupSimulation

TRANSCRIPTS = sorted(Path(__file__).parent.glob("group-*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript_is_what_members_see(path: Path) -> None:
    """Each file tells one scenario; a change of behaviour shows as a diff that a person can judge."""
    text = path.read_text(encoding="utf-8")
    assert text == replay(path, _Player().play)


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 8


class _Player:
    def __init__(self) -> None:
        self.simulation = GroupSimulation(offsets_retention_check_interval_ms=10**9)

    def play(self, commands: list[str]) -> list[str]:
        self.simulation.events.clear()
        written = len(self.simulation.log.batches.get(0, ()))
        for line in commands:
            self.simulation = _run(self.simulation, line)
        simulation = self.simulation
        return [*simulation.events, *_records(simulation, written), _state(simulation)]


def _run(simulation: GroupSimulation, line: str) -> GroupSimulation:
    command, *words = line.split()
    names = [word for word in words if "=" not in word]
    options = dict(word.split("=", 1) for word in words if "=" in word)
    if command == "settings":
        settings = {name: int(value) for name, value in options.items()}
        return GroupSimulation(offsets_retention_check_interval_ms=10**9, **settings)
    if command == "join":
        simulation.join(names[0], **_changes(options))
    elif command == "forget":
        # The client restarts: it has no member id any more.
        simulation.client(names[0], member_id="", generation_id=-1)
    elif command == "copy":
        # A zombie: the client as it was.
        original = simulation.client(names[0])
        simulation.client(
            names[1],
            member_id=original.member_id,
            generation_id=original.generation_id,
            instance_id=original.instance_id,
        )
    elif command in ("sync", "heartbeat"):
        for name in names:
            getattr(simulation, command)(name)
    elif command == "leave":
        simulation.leave(*names)
    elif command == "commit":
        simulation.commit(names[0], int(names[1]))
    elif command == "advance":
        simulation.advance(int(names[0]))
    elif command == "lag":
        simulation.log.lag = True
    elif command == "replicate":
        simulation.log.lag = False
        simulation.replicate()
    elif command == "refuse":
        simulation.log.append_error = ErrorCode[names[0]] if names else None
    elif command == "fail_over":
        simulation.fail_over()
    else:
        raise ValueError(f"no such command: {line}")
    return simulation


def _changes(options: dict[str, str]) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for name, value in options.items():
        if name == "protocols":
            changes[name] = tuple(value.split(","))
        elif name == "instance":
            changes["instance_id"] = value
        elif name in ("session", "rebalance"):
            changes[f"{name}_timeout_ms"] = int(value)
        else:
            changes[name] = int(value)
    return changes


def _records(simulation: GroupSimulation, start: int) -> list[str]:
    lines = []
    for _, _, batch in simulation.log.batches.get(0, ())[start:]:
        for record in iter_records(batch):
            key, value = bytes(record.key or b""), record.value
            if key[:2] != b"\0\2":
                lines.append("record offset")
            elif value is None:
                lines.append("record group tombstone")
            else:
                group = read_group_metadata_value(bytes(value))
                members = ",".join(f"{each.member_id}:{each.assignment.decode()}" for each in group.members)
                lines.append(f"record group generation={group.generation} members=[{members}]")
    return lines


def _state(simulation: GroupSimulation) -> str:
    group = simulation.group
    if group is None:
        return "= no group"
    waiting = sorted(
        f"{client.name}:{kind}" for client in simulation.clients.values() for kind in client.waiting
    )
    pending = f" pending={','.join(sorted(group.pending_join))}" if group.pending_join else ""
    return (
        f"= {group.state_name} generation={group.generation_id} "
        f"members=[{','.join(group.members)}]{pending} waiting=[{','.join(waiting)}]"
    )
