"""What a run of `kalda consume` writes while it waits."""

from collections.abc import Sequence
from typing import Any

from kalda.common.types import TopicPartition
from kalda.tools.console.consume_run import _Run
from tests.unit.tools.console.test_consume_plan import plan


class Notes:
    """The part of a tool that takes remarks."""

    def __init__(self) -> None:
        self.output = self
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


class Assigned:
    """A consumer with these partitions."""

    def __init__(self, *partitions: TopicPartition) -> None:
        self.partitions: Sequence[TopicPartition] = partitions

    def assignment(self) -> Sequence[TopicPartition]:
        return self.partitions


def run(notes: Notes, consumer: Assigned, **changed: object) -> _Run:
    unused: Any = None
    tool: Any = notes
    given: Any = consumer
    return _Run(tool, plan(**changed), unused, given)


def test_a_run_without_partitions_waits_for_its_group_and_then_for_records() -> None:
    """Another member may have them, or one that was killed until its session expires."""
    notes, consumer = Notes(), Assigned()
    reading = run(notes, consumer, group="readers", max_messages=2, is_endless=True)

    reading._report_wait(2)
    reading._report_wait(2)
    consumer.partitions = [TopicPartition("flights", 0)]
    reading._report_wait(1)

    of_group, at_end = notes.texts
    assert of_group.startswith("waiting for partitions of group readers: `kalda groups describe readers")
    assert "waiting at the end of flights for 1 more record; Ctrl-C ends" == at_end


def test_following_and_reading_to_the_end_need_no_remark() -> None:
    notes = Notes()

    run(notes, Assigned(TopicPartition("flights", 0)), is_endless=True)._report_wait(None)
    run(notes, Assigned(TopicPartition("flights", 0)), max_messages=5)._report_wait(5)

    assert [] == notes.texts
