"""Keeps the keys of an identity provider up to date for one listener.

The keys are read in a thread: every ``sasl.oauthbearer.jwks.endpoint.refresh.ms``, soon after a token named a
key that is not known, as providers rotate their keys, and soon after a file has changed. While they cannot be
read, the former ones stay in force.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kalda.common.backoff import ExponentialBackoff
from kalda.runtime.runtime import Runtime
from kalda.security.sasl.signed_token import KeySet

logger: Final = logging.getLogger(__name__)

EXPEDITED_SECONDS_MIN: Final = 5.0
"""Time between two reads that clients cause: anyone can send a token with an invented key."""


FILE_POLL_SECONDS: Final = 5.0
"""The time between two checks of a file, the same as for the files of certificates."""


class KeysError(Exception):
    """The keys cannot be read; the message names where from."""


@dataclass(frozen=True, slots=True)
class KeyTimes:
    """When keys are read; the settings ``sasl.oauthbearer.jwks.endpoint.…``."""

    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int


class BearerKeys:
    """The keys of one provider; `run` keeps them up to date."""

    def __init__(
        self,
        listener: str,
        read: Callable[[], KeySet],
        times: KeyTimes,
        runtime: Runtime,
        file_state: Callable[[], object] | None = None,
    ) -> None:
        """Read keys by `read`, which may block and raises `KeysError`.

        `file_state` returns what changes with the file that holds the keys; None if no file does.
        """
        self._listener: Final = listener
        self._read: Final = read
        self._times: Final = times
        self._clock: Final = runtime.clock
        self._runtime: Final = runtime
        self._file_state: Final = file_state
        self._seen: object = None
        """The state of the file when it was read last."""
        self._failures = 0
        self._read_at: float | None = None
        """Monotonic seconds of the last attempt."""
        self._is_wanted: Final = asyncio.Event()
        self.current: KeySet | None = None
        """None until they were read once."""

    def request(self) -> None:
        """Have the keys read soon: a token named one that is not known."""
        self._is_wanted.set()

    async def load(self) -> None:
        """Read the keys now; a failure is logged, and the former keys stay."""
        self._is_wanted.clear()
        self._read_at = self._clock.monotonic()
        if self._file_state is not None:
            # Before the content: a file that changes in between is read again.
            self._seen = self._file_state()
        try:
            self.current = await self._runtime.background.call(self._read)
        except KeysError as error:
            self._failures += 1
            level = logging.ERROR if self._failures == 1 else logging.DEBUG
            logger.log(
                level,
                "listener %s cannot read new keys for tokens of OAUTHBEARER, and tries again: %s",
                self._listener,
                error,
            )
        else:
            if self._failures:
                logger.info("listener %s has the keys for tokens of OAUTHBEARER again", self._listener)
            self._failures = 0

    async def run(self) -> None:
        """Read the keys when it is time, until cancelled."""
        while True:
            await self._wait()
            await self.load()

    async def _wait(self) -> None:
        times = self._times
        if self._failures:
            backoff = ExponentialBackoff(
                times.retry_backoff_ms, times.retry_backoff_max_ms, self._runtime.random.uniform
            )
            await asyncio.sleep(backoff.seconds(self._failures))
            return
        assert self._read_at is not None, "keys are loaded before they are kept up to date"
        due = self._read_at + times.refresh_ms / 1000
        while not self._is_wanted.is_set():
            left = due - self._clock.monotonic()
            if left <= 0 or (self._file_state is not None and self._file_state() != self._seen):
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(
                    left if self._file_state is None else min(left, FILE_POLL_SECONDS)
                ):
                    await self._is_wanted.wait()
        early_seconds = self._read_at + EXPEDITED_SECONDS_MIN - self._clock.monotonic()
        await asyncio.sleep(max(0.0, early_seconds))
