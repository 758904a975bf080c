"""Garbage collection in steps: what is old is not looked at again, and yet no cycle stays for good."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from kalda.broker.process.garbage import (
    REST_SHARE_MAX,
    THRESHOLDS,
    WHOLE_SECONDS_MAX,
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
    monkeypatch.setattr("kalda.broker.process.garbage.FROZEN_GROWTH_MIN", 1_000)
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
        (WHOLE_SECONDS_MAX - 1, 1.0, False),
        (WHOLE_SECONDS_MAX, 1.0, True),
    ],
)
def test_when_everything_is_looked_at(seconds: float, share: float, expected: bool) -> None:
    """While the process rests; at last even if it never does."""
    assert expected == is_whole_due(seconds, share)


async def test_the_settings_are_as_before_afterwards() -> None:
    """A process that embeds a broker has settings of its own."""
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    with collecting_in_steps():
        assert THRESHOLDS == gc.get_threshold()
        assert gc.get_freeze_count() > 0
    assert thresholds == gc.get_threshold()
    assert callbacks == gc.callbacks
    assert 0 == gc.get_freeze_count()
