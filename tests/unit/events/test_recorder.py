"""The recorder of a broker's events: numbers, bounds, and disks that fail."""

import asyncio
import errno
from collections.abc import Callable, Sequence

import pytest

from kalda.events import recorder
from kalda.events.event import CausalEvent, EventId, EventKind
from kalda.events.recorder import BURST, REPEAT_SECONDS, EventQuery, EventRecorder
from kalda.runtime.background import InlineExecutor
from kalda.runtime.clock import ManualClock
from tests.unit.storage.faulty_file_system import FaultyFileSystem

BROKER = {"broker": 1}
EVERYTHING = EventQuery()


class Bench:
    """A recorder over files in memory, with a clock that stands still."""

    def __init__(self, system: FaultyFileSystem | None = None) -> None:
        self.system = system or FaultyFileSystem()
        self.clock = ManualClock()
        self.directories = ["/a", "/b"]
        self.recorder = EventRecorder(
            1, self.clock, self.system, InlineExecutor(), lambda: self.directories, 1 << 20
        )
        self.last = self.recorder.open()

    async def events(self, query: EventQuery = EVERYTHING) -> list[tuple[str, str]]:
        page = await self.recorder.read(query)
        return [(event.kind, str(event.details.get("times", ""))) for event in page.events]


async def test_numbers_go_on_where_the_last_process_ended() -> None:
    bench = Bench()
    first = bench.recorder.emit("a", BROKER)
    await bench.recorder.close()

    again = Bench(bench.system.crash())
    second = again.recorder.emit("b", BROKER, cause=first)

    assert again.last is not None
    assert again.last.id == first
    assert first is not None
    assert second is not None
    assert second.number > first.number
    (_, found) = (await again.recorder.read(EventQuery())).events
    assert (second, first) == (found.id, found.cause)


async def test_clock_that_went_back_does_not_repeat_numbers() -> None:
    bench = Bench()
    first = bench.recorder.emit("a", BROKER)
    await bench.recorder.close()
    system = bench.system.crash()
    clock = ManualClock(5_000)
    recorder = EventRecorder(1, clock, system, InlineExecutor(), lambda: ["/a"], 1 << 20)
    recorder.open()

    second = recorder.emit("b", BROKER)

    assert first is not None
    assert EventId(1, first.number + 1) == second


async def test_page_ends_at_its_bound_and_goes_on_behind_it() -> None:
    bench = Bench()
    for _ in range(5):
        bench.recorder.emit("a", BROKER)

    page = await bench.recorder.read(EventQuery(events_max=3))
    assert page.has_more
    rest = await bench.recorder.read(EventQuery(events_max=3, after_number=page.events[-1].id.number))

    assert (3, 2, False) == (len(page.events), len(rest.events), rest.has_more)


async def test_subjects_select_and_events_of_brokers_come_with_them() -> None:
    bench = Bench()
    bench.recorder.emit("a", {"topic": "orders", "broker": 1})
    bench.recorder.emit("b", {"topic": "other"})
    bench.recorder.emit("c", BROKER)

    assert [("a", ""), ("c", "")] == await bench.events(EventQuery(subjects=[("topic", "orders")]))


async def test_burst_is_bounded_and_what_is_missing_is_counted() -> None:
    bench = Bench()
    for _ in range(int(BURST) + 5):
        bench.recorder.emit("a", BROKER)
    bench.clock.advance(1)
    bench.recorder.emit("b", BROKER)
    await bench.recorder.close()

    found = await bench.events()

    assert int(BURST) == found.count(("a", ""))
    assert [("b", ""), (EventKind.EVENTS_DROPPED, "5")] == found[-2:]


async def test_clients_do_not_crowd_out_what_happens_to_brokers() -> None:
    """A member that joins in a loop must not hide the election that explains it."""
    recorder = Bench().recorder
    while recorder.emit("member-joined", {"group": "g"}) is not None:
        pass
    assert recorder.emit("leader-changed", {"topic": "orders"}) is not None


async def test_names_that_clients_choose_do_not_crowd_out_other_kinds() -> None:
    recorder = Bench().recorder
    for number in range(1_000):
        recorder.emit_seldom("access-denied", {"user": f"u{number}"})
    assert recorder.emit_seldom("replication-failed", {"broker": 1}) is not None


async def test_equal_events_are_counted_for_a_minute() -> None:
    bench = Bench()
    ids = {bench.recorder.emit_seldom("refused", {"host": "10.0.0.1"}, {"reason": "x"}) for _ in range(4)}
    bench.recorder.emit_seldom("refused", {"host": "10.0.0.2"}, {"reason": "x"})
    bench.clock.advance(REPEAT_SECONDS)
    bench.recorder.end_repeated(bench.clock.monotonic())

    assert 1 == len(ids)
    assert [("refused", ""), ("refused", ""), ("refused", "3")] == await bench.events()


async def test_ring_moves_to_the_next_directory_when_its_disk_fails() -> None:
    bench = Bench()
    bench.recorder.emit("a", BROKER)
    await bench.recorder.close()

    def fail(_: str, path: str) -> None:
        if path.startswith("/a"):
            raise OSError(errno.EIO, "I/O error")

    bench.system.fault = fail
    bench.recorder.emit("b", BROKER)

    assert [("b", "")] == await bench.events()


async def test_events_wait_in_memory_while_no_disk_takes_them() -> None:
    bench = Bench()
    bench.recorder.emit("a", BROKER)
    await bench.recorder.close()
    bench.system.space_left = 5
    bench.recorder.emit("b", BROKER)

    assert [("a", ""), ("b", "")] == await bench.events()

    bench.system.space_left = None
    bench.recorder.emit("c", BROKER)
    await bench.recorder.close()
    again = Bench(bench.system.crash())
    assert [("a", ""), ("b", ""), ("c", "")] == await again.events()


@pytest.mark.parametrize("moved_ms", [-3_600_000, 5_000])
async def test_clock_that_is_set_is_an_event(moved_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of events and retention by time cannot be understood without it."""
    monkeypatch.setattr(recorder, "TICK_SECONDS", 0.001)
    bench = Bench()

    (event,) = await events_after(bench, lambda: bench.clock.jump(moved_ms / 1000))

    assert (EventKind.CLOCK_CHANGED, moved_ms) == (event.kind, event.details["milliseconds"])


async def test_process_that_stood_still_says_for_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "TICK_SECONDS", 0.001)
    bench = Bench()

    (event,) = await events_after(bench, lambda: bench.clock.advance(7))

    assert (EventKind.PROCESS_STALLED, 7.0) == (event.kind, event.details["seconds"])


async def events_after(bench: Bench, happens: Callable[[], None]) -> Sequence[CausalEvent]:
    running = asyncio.create_task(bench.recorder.run())
    await asyncio.sleep(0)
    happens()
    page = await bench.recorder.read(EventQuery())
    async with asyncio.timeout(60):
        while not page.events:
            # The tick is a timer of a millisecond.
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)
            page = await bench.recorder.read(EventQuery())
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return page.events
