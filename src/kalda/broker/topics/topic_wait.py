"""Waiting until the metadata shows what was asked of the controller.

An operation on topics is done when every topic's condition holds, or its time is up; it waits in the topic
purgatory, keyed by the topics' names, and is looked at again whenever one of them changes.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kalda.common.purgatory import DelayedOperation, DelayedOperationPurgatory


class TopicWait:
    """Lets operations on topics wait."""

    def __init__(self, purgatory: DelayedOperationPurgatory) -> None:
        self._purgatory: Final = purgatory

    async def wait_for(self, conditions: Mapping[str, Callable[[], bool]], timeout_ms: int) -> None:
        """Return when every topic's condition holds, or after the time-out; at once if there is none."""
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
        """Look again at what waits for these topics."""
        for topic in topics:
            self._purgatory.check_and_complete(topic)


class _DelayedTopicOperation(DelayedOperation):
    """Waits until all conditions hold.

    Only the last one that did not hold yet is asked, so that a change of each of n topics costs n in all.
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
