"""Golden transcripts of the produce gate: batches, offsets, markers and the coordinator's answers, in order.

``send 9/1 0 v12`` is a batch of producer 9 in epoch 1 with sequence 0 in Produce 12; ``offsets`` asks for a
TxnOffsetCommit; ``answer N CODE`` answers question N; ``mark 9/1`` writes a commit marker; ``later`` asks the
questions that were put off. ``KALDA_REWRITE_TRANSCRIPTS=1`` rewrites what follows from the commands.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.transaction.transaction_metadata import Identity
from tests.golden.transcripts import replay
from tests.unit.broker.transactions.test_produce_gate import PARTITION, Broker

TRANSCRIPTS = sorted((Path(__file__).parent / "gate").glob("*.txt"))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    path = Broker(tmp_path)
    yield path
    path.close()


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript_is_what_the_gate_does(path: Path, broker: Broker) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == replay(path, Player(broker).play)


def test_there_are_gate_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 2


class Player:
    """Plays one transcript."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.waiting: dict[str, tuple[Any, int | None]] = {}
        self.asked = 0
        self.later = 0

    def play(self, commands: list[str]) -> list[str]:
        return [line for command in commands for line in self.run(command)]

    def run(self, command: str) -> list[str]:
        words = command.split()
        lines = list(getattr(self, f"do_{words[0]}")(command, *words[1:]))
        questions = self.broker.verification.asked[self.asked :]
        for number, (_, producer, _, adds) in enumerate(questions, self.asked):
            what = "add" if adds else "verify"
            lines.append(f"question {number}: {what} for {producer.producer_id}/{producer.epoch}")
        self.asked += len(questions)
        lines += [f"asks again in {pause * 1000:.0f} ms" for pause, _ in self.broker.later[self.later :]]
        self.later = len(self.broker.later)
        for name, (reply, version) in tuple(self.waiting.items()):
            if not isinstance(reply, Pending) or reply.is_done:
                del self.waiting[name]
                code = reply.value if version is None else self.broker.codes(reply, version)[0]
                lines.append(f"{name}: {ErrorCode(code).name}")
        return [f"{command}:", *(f"  {line}" for line in lines or ["nothing"])]

    def do_send(self, command: str, producer: str, sequence: str, version: str) -> Iterator[str]:
        api_version = int(version.removeprefix("v"))
        reply = self.broker.send(int(sequence), epoch=_identity(producer).epoch, version=api_version)
        self.waiting[command] = (reply, api_version)
        yield from ()

    def do_offsets(self, command: str, producer: str, how: str) -> Iterator[str]:
        gate = self.broker.gate
        self.waiting[command] = (gate.verify("t", _identity(producer), PARTITION, adds=how == "add"), None)
        yield from ()

    def do_answer(self, _: str, number: str, code: str) -> Iterator[str]:
        self.broker.verification.answer(int(number), ErrorCode[code])
        yield from ()

    def do_mark(self, _: str, producer: str) -> Iterator[str]:
        yield self.broker.mark(epoch=_identity(producer).epoch).name

    def do_later(self, _: str) -> Iterator[str]:
        put_off = tuple(self.broker.later)
        self.broker.later.clear()
        self.later = 0
        for _pause, call in put_off:
            call()
        yield from ()


def _identity(text: str) -> Identity:
    producer_id, _, epoch = text.partition("/")
    return Identity(int(producer_id), int(epoch))
