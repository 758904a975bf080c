"""Golden transcripts: what producers ask, what they are told, what is written and which markers follow.

A transcript is blocks of commands, a line of dashes, and what came of them. To write the outcome anew after
a wanted change: ``KALDA_REWRITE_TRANSCRIPTS=1 pytest tests/golden/transactions``, then review the diff.
"""

from pathlib import Path

import pytest

from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.coordinator.transaction.decisions import Decision
from kalda.coordinator.transaction.transaction_metadata import NO_IDENTITY, Identity, TransactionMetadata
from tests.golden.transcripts import replay
from tests.unit.coordinator.transaction_simulation import PARTITION, Simulation

TRANSCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript_is_what_the_coordinator_does(path: Path) -> None:
    """Each file tells one scenario; a change of behaviour shows as a diff that a person can judge."""
    text = path.read_text(encoding="utf-8")
    assert text == replay(path, Player().play)


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 7


class Player:
    """Plays one transcript."""

    def __init__(self) -> None:
        self.simulation = Simulation()
        self.log_end = 0
        self.marker_count = 0

    def play(self, commands: list[str]) -> list[str]:
        return [line for command in commands for line in self.run(command)]

    def run(self, command: str) -> list[str]:
        words = command.split()
        lines = getattr(self, f"do_{words[0].replace('-', '_')}")(*words[1:])
        self.simulation.loop.settle()
        lines = [f"  {line}" for line in lines]
        for name, metadata in self.simulation.written(self.log_end):
            lines.append(f"  write {name}: {describe(metadata)}")
        self.log_end = self.simulation.log.end_offset(PARTITION)
        for identity, is_commit, epoch, partition in self.simulation.markers.sent[self.marker_count :]:
            outcome = "COMMIT" if is_commit else "ABORT"
            lines.append(f"  marker {outcome} {show(identity)} by coordinator {epoch} to {partition}")
        self.marker_count = len(self.simulation.markers.sent)
        return [f"{command}:", *(lines or ["  nothing"])]

    def do_protocol(self, version: str) -> list[str]:
        self.simulation.version = int(version)
        return []

    def do_begin(self, name: str, *options: str) -> list[str]:
        given = dict(option.partition("=")[::2] for option in options)
        decision = self.simulation.begin(
            name,
            int(given.get("timeout", "60000")),
            identity(given["as"]) if "as" in given else None,
            two_phase="2pc" in given,
            keep="keep" in given,
        )
        return [answer(decision)]

    def do_add(self, name: str, producer: str, *partitions: str) -> list[str]:
        return [self.simulation.add(identity(producer), *map(partition, partitions), name=name).name]

    def do_verify(self, name: str, producer: str, *partitions: str) -> list[str]:
        codes = self.simulation.verify(identity(producer), *map(partition, partitions), name=name)
        return [f"{each}: {code.name}" for each, code in codes.items()]

    def do_commit(self, name: str, producer: str) -> list[str]:
        return [answer(self.simulation.end(identity(producer), commit=True, name=name))]

    def do_abort(self, name: str, producer: str) -> list[str]:
        return [answer(self.simulation.end(identity(producer), commit=False, name=name))]

    def do_marked(self, *partitions: str) -> list[str]:
        for each in partitions:
            self.simulation.markers.write(partition(each))
        return []

    def do_wait(self, milliseconds: str) -> list[str]:
        self.simulation.loop.advance(int(milliseconds))
        self.simulation.coordinator.abort_timed_out()
        self.simulation.coordinator.forget_expired()
        return []

    def do_fail_over(self) -> list[str]:
        self.marker_count = 0
        self.simulation.fail_over()
        return []


def identity(text: str) -> Identity:
    producer_id, _, epoch = text.partition("/")
    return Identity(int(producer_id), int(epoch))


def partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def show(identity: Identity) -> str:
    return f"{identity.producer_id}/{identity.epoch}"


def answer(decision: Decision) -> str:
    if decision.code is not ErrorCode.NONE:
        return decision.code.name
    text = "NONE" if decision.identity == NO_IDENTITY else f"NONE {show(decision.identity)}"
    return text if decision.ongoing == NO_IDENTITY else f"{text}, keeps {show(decision.ongoing)}"


def describe(metadata: TransactionMetadata | None) -> str:
    if metadata is None:
        return "forgotten"
    partitions = " ".join(map(str, sorted(metadata.partitions)))
    following = metadata.next_identity
    return " ".join(
        part
        for part in (
            metadata.state.title,
            show(metadata.identity),
            f"[{partitions}]" if partitions else "",
            f"next {show(following)}" if following else "",
        )
        if part
    )
