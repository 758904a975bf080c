"""Makes an operation on topics wait until the metadata cache shows its result.

The operation waits in the topic purgatory under the names of its topics and is checked whenever one of them
changes. It completes when the condition of each topic holds, or when its time-out expires, which is no error.
`TopicAdmin` gives the conditions; this module knows neither the cache nor the operation.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kalda.common.purgatory import DelayedOperation, DelayedOperationPurgatory


class TopicWait:
    """Waits for conditions on topics."""

    def __init__(self, purgatory: DelayedOperationPurgatory) -> None:
        self._purgatory: Final = purgatory

    async def wait_for(self, conditions: Mapping[str, Callable[[], bool]], timeout_ms: int) -> None:
        """Wait until the condition of each topic holds, or until the time-out; return at once if it is 0."""
        if not conditions or timeout_ms <= 0:
            return
        done = asyncio.get_running_loop().create_future()
        waiting = _DelayedTopicOperation(timeout_ms, list(conditions.values()), done)
        self._purgatory.try_complete_else_watch(waiting, list(conditions))
        try:
            await done
        finally:
            waiting.force_complete()

    def topics_changed(self, topics: Iterable[str]) -> None:
        """Check the operations that wait for these topics."""
        for topic in topics:
            self._purgatory.check_and_complete(topic)


class _DelayedTopicOperation(DelayedOperation):
    """Completes when all conditions hold.

    Each check starts with the last condition that did not hold, so n changes of n topics cost n checks in
    all.
    """

    __slots__ = ("_conditions", "_done")

    def __init__(
        self, delay_ms: int, conditions: list[Callable[[], bool]], done: asyncio.Future[None]
    ) -> None:
        super().__init__(delay_ms)
        self._conditions = conditions
        self._done = done

    def try_complete(self) -> bool:
        while self._conditions and self._conditions[-1]():
            self._conditions.pop()
        return not self._conditions and self.force_complete()

    def on_complete(self) -> None:
        if not self._done.done():
            self._done.set_result(None)
