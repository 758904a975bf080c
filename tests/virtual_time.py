"""An event loop whose time stands still while callbacks run, and jumps to the next timer when none is due."""

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    """Never waits: what would be waited for is added to `now`."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found:
            assert timeout is not None, "the test waits for what never comes"
            self.now += max(timeout, 0.0)
        return found


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop of its own time, for tests without threads."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


class LoopClock:
    """A clock that reads the running loop's time."""

    def time_ns(self) -> int:
        return self.time_ms() * 1_000_000

    def time_ms(self) -> int:
        return round(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time. Tasks left over and errors that are only logged fail it."""
    unhandled: list[Mapping[str, Any]] = []
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.get_loop().set_exception_handler(lambda _, context: unhandled.append(context))

        async def checked() -> T:
            result = await main
            # What was cancelled last gets a turn to end.
            for _ in range(3):
                await asyncio.sleep(0)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"tasks left over: {left}"
            return result

        result = runner.run(checked())
    assert [] == unhandled
    return result
