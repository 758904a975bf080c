"""Warns while no broker has ever answered a client: a wrong address looks like a broker that starts.

A client waits for its brokers by default, as Kafka's clients do: programs start before them. It logs one
warning, at the first failure or after a second. With `bootstrap.wait.ms` it gives up instead. Once a broker
has answered, this module has no effect: a restart is ridden out by retries.
"""

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

from kalda.clients.config.common_config import CommonClientConfig
from kalda.clients.errors import BootstrapError, BrokerConnectionError, ClientError, RequestTimedOutError
from kalda.runtime.system.loop_logger import loop_logger

T = TypeVar("T")

logger: Final = loop_logger(__name__)

NOTICE_SECONDS: Final = 1.0
"""How long a broker may take for its first answer before the warning: longer is silence to a person."""

_ADVICE: Final = "start a broker there (`kalda start`), or correct the address"


class FirstContact:
    """Whether any broker has answered a client, and what to do while none has."""

    def __init__(self, config: CommonClientConfig) -> None:
        self._servers: Final = ",".join(config.bootstrap_servers)
        self._wait_ms: Final = config.bootstrap_wait_ms
        self._began: float | None = None
        """When the first attempt began, in the loop's seconds."""
        self._is_made = False
        self._has_warned = False

    async def attempt(self, answer: Awaitable[T]) -> T:
        """Wait for an answer of any broker.

        Raises:
            BootstrapError: none has ever answered, and `bootstrap.wait.ms` is over.
            ClientError: what `answer` raised.
        """
        if self._is_made:
            return await answer
        loop = asyncio.get_running_loop()
        if self._began is None:
            self._began = loop.time()
        notice = loop.call_later(NOTICE_SECONDS, self._warn, "no answer yet")
        try:
            found = await answer
        except (BrokerConnectionError, RequestTimedOutError) as error:
            self._failed(error, (loop.time() - self._began) * 1000)
            raise
        finally:
            notice.cancel()
        self._is_made = True
        return found

    def _failed(self, error: ClientError, waited_ms: float) -> None:
        if self._is_made:
            return
        if 0 <= self._wait_ms <= waited_ms:
            raise BootstrapError(
                f"no broker of `bootstrap.servers`={self._servers} answers: {error}; {_ADVICE}"
            ) from error
        self._warn(str(error))

    def _warn(self, reason: str) -> None:
        if not self._has_warned and not self._is_made:
            self._has_warned = True
            logger.warning(
                "No broker of `bootstrap.servers`=%s answers: %s. Waiting for one; if none comes, %s.",
                self._servers,
                reason,
                _ADVICE,
            )
