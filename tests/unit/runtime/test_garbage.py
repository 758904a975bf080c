"""Garbage collection in steps: what is old is not looked at again, and yet no cycle stays for good."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from kalda.runtime.system.garbage import (
    REST_SHARE_MAX,
    THRESHOLDS,
    WHOLE_SECONDS_MIN,
    SteppedCollection,
    collecting_in_steps,
    is_whole_due,
)


class Node:
    """Can be part of a cycle, and be watched."""

    def __init__(self) -> None:
        self.next = self


@pytest.fixture
def collecting() -> Iterator[SteppedCollection]:
    loop = asyncio.new_event_loop()
    collecting = SteppedCollection()
    collecting.start(loop)
    yield collecting
    collecting.stop()
    loop.close()


def test_a_full_collection_freezes_what_it_has_seen(collecting: SteppedCollection) -> None:
    """Or each would look at all that a broker has loaded."""
    kept = Node()
    assert any(kept is each for each in gc.get_objects())
    gc.collect()
    assert not any(kept is each for each in gc.get_objects())


def test_young_collections_freeze_nothing(collecting: SteppedCollection) -> None:
    """What a request makes is most likely garbage soon."""
    gc.collect()
    kept = Node()
    gc.collect(1)
    assert any(kept is each for each in gc.get_objects())


def test_a_cycle_that_breaks_off_late_is_found_by_a_whole_collection(collecting: SteppedCollection) -> None:
    kept = Node()
    gone = weakref.ref(kept)
    gc.collect()
    del kept
    gc.collect()
    assert gone() is not None
    collecting.collect_whole()
    assert gone() is None


def test_a_process_that_made_nothing_is_left_alone(collecting: SteppedCollection) -> None:
    gc.collect(1)
    assert collecting.has_worked
    collecting.collect_whole()
    assert not collecting.has_worked


def test_many_new_frozen_objects_cause_a_whole_collection(
    collecting: SteppedCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Peers that connect and leave make cycles; in an hour they could make gigabytes of them."""
    monkeypatch.setattr("kalda.runtime.system.garbage.FROZEN_GROWTH_MIN", 1_000)
    monkeypatch.setattr("kalda.runtime.system.garbage.REST_SHARE_MAX", float("inf"))
    loop = asyncio.new_event_loop()
    collecting.collect_whole()
    kept = [Node() for _ in range(10)]
    gone = weakref.ref(kept[0])
    gc.collect()
    kept.clear()
    collecting._check(loop)
    assert gone() is not None, "they are too few"
    count = gc.get_freeze_count()
    kept = [Node() for _ in range(count)]
    gc.collect()
    kept.clear()
    collecting._check(loop)
    assert gone() is None
    assert gc.get_freeze_count() < count + 1_000
    loop.close()


@pytest.mark.parametrize(
    ("seconds", "share", "expected"),
    [
        (WHOLE_SECONDS_MIN - 1, 0.0, False),
        (WHOLE_SECONDS_MIN, REST_SHARE_MAX, True),
        (WHOLE_SECONDS_MIN, REST_SHARE_MAX + 0.01, False),
        (100 * WHOLE_SECONDS_MIN, 1.0, False),
    ],
)
def test_when_everything_is_looked_at(seconds: float, share: float, expected: bool) -> None:
    """While the process rests: the event loop stands still meanwhile."""
    assert expected == is_whole_due(seconds, share)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_busy_process_collects_when_its_objects_have_doubled(share: float) -> None:
    assert (share == 0.0) == is_whole_due(1.0, share, has_grown=True)
    assert is_whole_due(1.0, share, has_grown=True, has_doubled=True)


def test_objects_of_requests_in_work_cause_no_whole_collection(
    collecting: SteppedCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large request has a million objects for some seconds; one check may find them."""
    monkeypatch.setattr("kalda.runtime.system.garbage.FROZEN_GROWTH_MIN", 1_000)
    monkeypatch.setattr("kalda.runtime.system.garbage.FROZEN_GROWTH_BUSY", 1_000)
    monkeypatch.setattr("kalda.runtime.system.garbage.REST_SHARE_MAX", float("-inf"))
    loop = asyncio.new_event_loop()
    collecting.collect_whole()
    in_work = [Node() for _ in range(gc.get_freeze_count() + 2_000)]
    gone = weakref.ref(in_work[0])
    gc.collect()
    in_work.clear()
    collecting._check(loop)
    assert gone() is not None, "the first check"
    collecting._check(loop)
    assert gone() is None, "they are still there at the second"
    loop.close()


def test_full_collections_stay_short_after_a_whole_one(collecting: SteppedCollection) -> None:
    """CPython waits for new objects in proportion to those that the last one left, and traverses them all."""
    traversed: list[int] = []

    def note(phase: str, info: dict[str, Any]) -> None:
        if phase == "start" and info["generation"] == 2:
            traversed.append(sum(gc.get_count()))

    kept = [Node() for _ in range(400_000)]
    collecting.collect_whole()
    gc.callbacks.append(note)
    try:
        new = [Node() for _ in range(60_000)]
    finally:
        gc.callbacks.remove(note)
    assert len(traversed) >= 2
    assert len(kept) > len(new)


async def test_the_settings_are_as_before_afterwards() -> None:
    """A process that embeds a broker has settings of its own."""
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    with collecting_in_steps():
        assert THRESHOLDS == gc.get_threshold()
        assert gc.get_freeze_count() > 0
    assert thresholds == gc.get_threshold()
    assert callbacks == gc.callbacks
    assert 0 == gc.get_freeze_count()
