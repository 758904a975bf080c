"""Asks one question of a cluster in bounded time, and keeps the reason where there is no answer."""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from kalda.clients.errors import ClientError

if TYPE_CHECKING:
    from kalda.clients.admin.outcomes import Outcomes

PART_TIMEOUT_MS: Final = 8000
"""How long one question may take, with its retries. Most are asked together."""

_UNREAD_MAX: Final = 20
"""Reasons that are kept: a broker that does not answer is the same reason a thousand times."""

K = TypeVar("K")
V = TypeVar("V")


class Questions:
    """The questions of one examination."""

    def __init__(self) -> None:
        self.unread: Final[list[str]] = []
        """What got no answer, each with the reason."""

    async def ask(self, what: str, question: Awaitable[V], otherwise: V) -> V:
        """Return the answer, or `otherwise` if there is none in time."""
        try:
            async with asyncio.timeout(PART_TIMEOUT_MS / 1000):
                return await question
        except (ClientError, TimeoutError) as error:
            self.note(f"{what}: {str(error) or 'no answer in time'}")
            return otherwise

    async def ask_of_each(self, what: str, question: "Awaitable[Outcomes[K, V]]") -> Mapping[K, V]:
        """Return the results of a question about many things; the errors of the others are kept."""
        found = await self.ask(what, question, None)
        if found is None:
            return {}
        for key, error in found.errors.items():
            self.note(f"{what} {key}: {error}")
        return found.results

    def note(self, text: str) -> None:
        """Keep that something could not be read."""
        if len(self.unread) < _UNREAD_MAX:
            self.unread.append(text)
        elif len(self.unread) == _UNREAD_MAX:
            self.unread.append("and more")
