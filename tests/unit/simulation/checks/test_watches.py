"""Watches that have to fire before their session reads a newer state."""

from kalda.simulation.checks.watches import SetWatches
from kalda.zookeeper.port import EventType, WatchEvent

PATH = "/register"
CHANGED = WatchEvent(EventType.DATA_CHANGED, PATH)


def test_a_newer_state_without_an_event_is_a_lost_watch() -> None:
    watches = SetWatches()
    assert None is watches.begin(PATH).answered(5)

    assert f"{PATH} was changed by 0x6 after a watch was set at 0x5" == watches.begin(PATH).answered(6)


def test_a_newer_state_after_the_event_is_right() -> None:
    watches = SetWatches()
    first = watches.begin(PATH)
    first.answered(5)
    first(CHANGED)

    assert None is watches.begin(PATH).answered(6)


def test_an_event_may_come_while_the_next_read_is_on_its_way() -> None:
    watches = SetWatches()
    first = watches.begin(PATH)
    first.answered(5)
    second = watches.begin(PATH)
    first(CHANGED)

    assert None is second.answered(6)
    assert watches.begin(PATH).answered(7)


def test_an_event_that_comes_with_the_answer_ends_the_watch() -> None:
    watches = SetWatches()
    first = watches.begin(PATH)
    first(CHANGED)
    first.answered(5)

    assert None is watches.begin(PATH).answered(6)


def test_a_session_that_ends_has_no_watches() -> None:
    watches = SetWatches()
    watches.begin(PATH).answered(5)

    watches.clear()

    assert None is watches.begin(PATH).answered(6)
