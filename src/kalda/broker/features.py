"""The features that the whole cluster has agreed on: ``/feature``, as Kafka keeps it (KIP-584).

A feature that is finalised is in force on every broker, and clients may rely on it. ``transaction.version``
2 means that every end of a transaction raises its producer's epoch (KIP-890), ``group.version`` 1 that there
are consumer groups (KIP-848; it tells clients so, the setting `group.coordinator.rebalance.protocols`
decides). The first broker of a new cluster finalises what it supports; after that the levels change only by
hand.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Final

from kalda.coordination import paths
from kalda.coordination.errors import CoordinationError, NodeExistsError, NoNodeError
from kalda.coordination.port import Coordination, SessionState, WatchEvent

logger: Final = logging.getLogger(__name__)

TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
SUPPORTED: Final[Mapping[str, tuple[int, int]]] = {GROUP_VERSION: (0, 1), TRANSACTION_VERSION: (0, 2)}
"""By feature: the lowest and the highest level that this broker can run."""

RETRY_SECONDS: Final = 1.0
_ZNODE_VERSION: Final = 2
"""Of the znode's format, in which a feature has one level."""
_ENABLED: Final = 1


class Features:
    """What is in force now; nothing is, until it was read."""

    def __init__(self, coordination: Coordination) -> None:
        self._coordination: Final = coordination
        self._is_due: Final = asyncio.Event()
        self.levels: Mapping[str, int] = {}
        """By feature: the level in force."""
        self.epoch = -1
        """Grows with every change; -1 before the first."""

    @property
    def transaction_version(self) -> int:
        """The level of ``transaction.version``: 0 unless it is finalised."""
        return self.levels.get(TRANSACTION_VERSION, 0)

    async def start(self) -> None:
        """Finalise what this broker supports if nobody has decided yet, and read what is in force.

        Raises:
            CoordinationError: coordination cannot be asked.
        """
        self._coordination.add_state_listener(self._on_state)
        try:
            await self._read()
        except NoNodeError:
            levels = {name: highest for name, (_, highest) in SUPPORTED.items()}
            try:
                await self._coordination.create(paths.FEATURE, encode_features(levels))
            except NodeExistsError:
                logger.info("another broker has finalised the features")
            await self._read()

    async def run(self) -> None:
        """Follow changes, until cancelled."""
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            try:
                await self._read()
            except NoNodeError:
                self.levels, self.epoch = {}, -1
            except CoordinationError as error:
                logger.warning("the features cannot be read now: %s", error)
                self._is_due.set()
                await asyncio.sleep(RETRY_SECONDS)

    async def _read(self) -> None:
        await self._coordination.watch_data(paths.FEATURE, self._on_event)
        data, stat = await self._coordination.get(paths.FEATURE)
        levels = decode_features(data)
        if levels != self.levels:
            logger.info("features in force: %s", levels or "none")
        self.levels, self.epoch = levels, stat.version

    def _on_event(self, event: WatchEvent) -> None:
        self._is_due.set()

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            # Watches may be gone with the session before.
            self._is_due.set()


def encode_features(levels: Mapping[str, int]) -> bytes:
    """Write the znode as Kafka does."""
    fields = {
        "version": _ZNODE_VERSION,
        "status": _ENABLED,
        "features": dict(levels),
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_features(data: bytes) -> dict[str, int]:
    """Read the levels that are in force; those of features that are unknown here are left out.

    A level above what this broker can run counts as the highest that it can.
    """
    try:
        fields = json.loads(data)
        features = fields["features"]
        if fields["status"] != _ENABLED:
            return {}
        found: dict[str, int] = {}
        for name, level in features.items():
            # Version 1 of the format had a range.
            highest = level["max_version_level"] if isinstance(level, dict) else level
            if name in SUPPORTED:
                found[name] = min(int(highest), SUPPORTED[name][1])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        logger.error("%s holds %r, which is no list of features: %s", paths.FEATURE, data, error)
        return {}
    return {name: level for name, level in found.items() if level > 0}
