"""Defines the base of the classes that hold the admin client's methods, one class for each subject.

`AsyncAdmin` inherits from all of them. The base runs calls; it neither opens nor closes connections.
"""

from collections.abc import Hashable, Iterable
from typing import TypeVar

from kalda.clients.admin.admin_call import AdminOperation
from kalda.clients.admin.call_runner import AdminCallRunner
from kalda.clients.admin.outcomes import Outcomes

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class AdminMethods:
    """Base of the classes with methods."""

    def _open_runner(self) -> AdminCallRunner:
        """Return the runner of calls; the first use starts the network client."""
        raise NotImplementedError

    async def _run(
        self, operation: AdminOperation[K, V], keys: Iterable[K], timeout_ms: int | None, *, outcomes: bool
    ) -> Outcomes[K, V]:
        """Run a call for each key; raise the first error unless the caller asked for `outcomes`."""
        found = await self._open_runner().run(operation, keys, timeout_ms)
        if not outcomes:
            found.raise_for_errors()
        return found

    async def _brokers(self, broker_ids: Iterable[int] | None, timeout_ms: int | None) -> Iterable[int]:
        """Return the ids that a caller gave, or those of all brokers."""
        return await self._open_runner().broker_ids(timeout_ms) if broker_ids is None else broker_ids

    async def _run_one(self, operation: AdminOperation[None, V], timeout_ms: int | None) -> V:
        """Run a call that concerns the whole cluster, and return its result or raise its error."""
        found: Outcomes[None, V] = await self._run(operation, (None,), timeout_ms, outcomes=True)
        return found[None]
