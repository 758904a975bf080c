"""Keeps the finalized features of the cluster, stored in ``/feature`` in Kafka's format (KIP-584).

A finalized feature is in force on every broker, and clients may rely on it. With ``transaction.version`` 2
each end of a transaction raises the epoch of its producer (KIP-890). ``group.version`` 1 enables consumer
groups (KIP-848), if the setting `group.coordinator.rebalance.protocols` has them too. ``share.version`` 1
enables share groups (KIP-932). The first broker of a new cluster finalizes the levels that it supports.
`Features` reads and watches the znode, finalizes those levels, and makes the changes that an operator
requests: the handler of UpdateFeatures calls `update`, on the broker that is the controller.

Brokers of Apache Kafka with ZooKeeper support no feature, and exit when the znode finalizes one. The levels
are therefore in a key of Kalda's own, which they ignore::

    {"version":1,"status":1,"features":{},
     "kalda":{"group.version":1,"share.version":1,"transaction.version":2}}

While a broker of Apache Kafka is registered no feature is in force, whatever the znode contains, and Kalda's
brokers remove the levels from the znode: clients notice that by its version. They do not come back by
themselves.
"""

import asyncio
import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from kalda.cluster import paths
from kalda.cluster.registered_brokers import RegisteredBrokers
from kalda.cluster.schema import NewerSchemaError
from kalda.common.backoff import jittered
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.log_text import bytes_text
from kalda.common.received_json import loads_received
from kalda.runtime.error_text import error_text
from kalda.runtime.random import Random
from kalda.zookeeper.errors import BadVersionError, NodeExistsError, NoNodeError, ZooKeeperError
from kalda.zookeeper.port import SessionState, WatchEvent, ZooKeeperClient

logger: Final = logging.getLogger(__name__)

TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
SHARE_VERSION: Final = "share.version"
Levels = Mapping[str, tuple[int, int]]
"""By feature: the lowest and the highest level that a broker supports."""

SUPPORTED: Final[Levels] = {GROUP_VERSION: (0, 1), SHARE_VERSION: (0, 1), TRANSACTION_VERSION: (0, 2)}

RETRY_SECONDS: Final = 1.0
_ZNODE_VERSION: Final = 1
"""The version of the znode's format that all releases of Apache Kafka read; those before 3.3 refuse 2."""
_ZNODE_VERSION_READ: Final = 2
"""The highest version that this release reads; Apache Kafka writes it from 3.3 on."""
_OWN: Final = "kalda"
"""The key of the levels of Kalda's brokers. Its first releases wrote them among those of Apache Kafka."""
_ENABLED: Final = 1
_LEVEL_MAX: Final = 0x7FFF
"""ApiVersions carries levels in 16 bits."""


class UpgradeType(IntEnum):
    """Whether a level may decrease; the values are those of UpdateFeatures."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """A change that an operator requests; level 0 removes the feature."""

    name: str
    level: int
    upgrade_type: int


class UnsupportedFeaturesError(NewerSchemaError):
    """The cluster has finalized what this release does not support; the message names each feature."""


class Features:
    """The features in force; none until the znode has been read."""

    def __init__(self, zookeeper: ZooKeeperClient, random: Random, brokers: RegisteredBrokers) -> None:
        self._zookeeper: Final = zookeeper
        self._random: Final = random
        self._brokers: Final = brokers
        self._is_due: Final = asyncio.Event()
        self.finalized: Mapping[str, int] = {}
        """By feature that this broker supports: the level in the znode."""
        self.epoch = -1
        """The version of the znode, which grows with every change; -1 without a znode."""

    @property
    def levels(self) -> Mapping[str, int]:
        """By feature: the level in force."""
        return {} if self._brokers.has_kafka else self.finalized

    @property
    def transaction_version(self) -> int:
        """The level of ``transaction.version``; 0 if it is not finalized."""
        return self.levels.get(TRANSACTION_VERSION, 0)

    @property
    def group_version(self) -> int:
        """The level of ``group.version``; 0 if it is not finalized."""
        return self.levels.get(GROUP_VERSION, 0)

    @property
    def share_version(self) -> int:
        """The level of ``share.version``; 0 if it is not finalized."""
        return self.levels.get(SHARE_VERSION, 0)

    async def start(self) -> None:
        """Read the features; in a new cluster, finalize the levels that this broker supports.

        A cluster that has an id but no features is one of an Apache Kafka before 2.7.

        Raises:
            UnsupportedFeaturesError: this broker does not support a level in force.
            ZooKeeperError: ZooKeeper did not answer.
        """
        self._zookeeper.add_state_listener(self._on_state)
        self._brokers.on_change(self._on_brokers)
        try:
            await self._read()
        except NoNodeError:
            is_new = await self._zookeeper.exists(paths.CLUSTER_ID) is None
            levels = {name: highest for name, (_, highest) in SUPPORTED.items()} if is_new else {}
            try:
                await self._zookeeper.create(paths.FEATURE, encode_features(levels))
            except NodeExistsError:
                logger.info("another broker has finalized the features")
            await self._read()

    async def update(
        self, updates: Collection[FeatureUpdate], brokers: Mapping[int, Levels], *, validates_only: bool
    ) -> None:
        """Change the finalized features, all of them or none; `brokers` has the levels that each supports.

        Raises:
            ApiError: INVALID_UPDATE_VERSION, and nothing was changed.
            ZooKeeperError: ZooKeeper did not answer; the change may or may not have been made.
        """
        while True:
            version: int | None
            try:
                data, stat = await self._zookeeper.get(paths.FEATURE)
                present, version = _decode_all(data), stat.version
            except NoNodeError:
                present, version = {}, None
            wanted = updated(present, updates, brokers)
            encoded = encode_features(wanted)
            if validates_only or (wanted == present and (version is None or encoded == data)):
                return
            try:
                if version is None:
                    await self._zookeeper.create(paths.FEATURE, encoded)
                else:
                    await self._zookeeper.set(paths.FEATURE, encoded, version)
            except (BadVersionError, NodeExistsError, NoNodeError):
                # Another broker changed the znode first: the updates have to be validated again.
                continue
            await self._read()
            return

    async def run(self) -> None:
        """Read the znode after each change, until cancelled.

        Raises:
            UnsupportedFeaturesError: a level was finalized that this broker does not support: it must stop.
        """
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            try:
                await self._read()
                if self.finalized and self._brokers.has_kafka:
                    await self._end_all()
            except NoNodeError:
                self.finalized, self.epoch = {}, -1
            except ZooKeeperError as error:
                logger.warning("cannot read the features, will retry: %s", error)
                self._is_due.set()
                await asyncio.sleep(jittered(RETRY_SECONDS, self._random))

    async def _read(self) -> None:
        await self._zookeeper.exists(paths.FEATURE, self._on_event)
        data, stat = await self._zookeeper.get(paths.FEATURE)
        levels = decode_features(data)
        if levels != self.finalized:
            text = ", ".join(f"{name}={level}" for name, level in sorted(levels.items()))
            logger.info("finalized features: %s", text or "none")
        self.finalized, self.epoch = levels, stat.version

    async def _end_all(self) -> None:
        """Remove all levels from the znode, unless another broker has changed it since it was read."""
        try:
            await self._zookeeper.set(paths.FEATURE, encode_features({}), self.epoch)
        except BadVersionError:
            return
        logger.warning(
            "a broker of Apache Kafka has joined: no feature is finalized any more; when it has left, `kalda "
            "features upgrade` finalizes features again"
        )

    def _on_brokers(self) -> None:
        if self._brokers.has_kafka:
            self._is_due.set()

    def _on_event(self, event: WatchEvent) -> None:
        self._is_due.set()

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            # The watches of an expired session are gone.
            self._is_due.set()


def encode_features(levels: Mapping[str, int]) -> bytes:
    """Return the content of the znode, which Apache Kafka reads as one without features."""
    fields = {
        "version": _ZNODE_VERSION,
        "status": _ENABLED,
        "features": {},
        _OWN: dict(levels),
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_features(data: bytes) -> dict[str, int]:
    """Return the levels in force.

    A broker that does not support one of them would read records of a newer release wrongly, or write older
    ones beside them. As in Kafka, it neither starts nor goes on.

    Raises:
        UnsupportedFeaturesError: this broker does not support a level.
    """
    levels = {name: level for name, level in _decode_all(data).items() if level > 0}
    beyond = {name: level for name, level in levels.items() if level > SUPPORTED.get(name, (0, 0))[1]}
    if beyond:
        found = ", ".join(f"{name}={level}" for name, level in sorted(beyond.items()))
        known = ", ".join(f"{name} {low} to {high}" for name, (low, high) in sorted(SUPPORTED.items()))
        raise UnsupportedFeaturesError(
            f"{paths.FEATURE} has features in force that this release of Kalda does not support: {found}; it "
            f"supports {known}. Start the newer release, which can take them back with `kalda features "
            "downgrade`, or `kalda features disable` for one of which this release knows nothing"
        )
    return levels


def updated(
    present: Mapping[str, int], updates: Collection[FeatureUpdate], brokers: Mapping[int, Levels]
) -> dict[str, int]:
    """Return the levels after an update; rules and error messages are those of Apache Kafka.

    Raises:
        ApiError: INVALID_UPDATE_VERSION, a level may not decrease, or a broker does not support it.
    """
    wanted = dict(present)
    for update in updates:
        reason = _reason_against(update, present.get(update.name, 0), brokers)
        if reason:
            raise ApiError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Invalid update version {update.level} for feature {update.name}. {reason}",
            )
        if update.level:
            wanted[update.name] = update.level
        else:
            wanted.pop(update.name, None)
    return wanted


def _reason_against(update: FeatureUpdate, present: int, brokers: Mapping[int, Levels]) -> str | None:
    if update.upgrade_type not in frozenset(UpgradeType):
        return "The controller does not support the given upgrade type."
    if update.level < 0:
        return "A feature version cannot be less than 0."
    if not update.level and not present and update.name not in SUPPORTED:
        return f"Feature {update.name} not found."
    parts = {"The controller": SUPPORTED} | {f"Broker {each}": levels for each, levels in brokers.items()}
    for part, supported in parts.items():
        lowest, highest = supported.get(update.name, (0, 0))
        if not lowest <= update.level <= highest:
            if not highest:
                return f"{part} does not support this feature."
            return f"{part} only supports versions {lowest}-{highest}"
    is_upgrade = update.upgrade_type == UpgradeType.UPGRADE
    if update.level < present and is_upgrade:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade."
        )
    if update.level > present and not is_upgrade:
        return "Can't downgrade to a newer version."
    return None


def _decode_all(data: bytes) -> dict[str, int]:
    """Return the levels of all features, supported or not; log malformed `data` and return none."""
    try:
        fields = loads_received(data)
        version = fields.get("version")
        if isinstance(version, int) and version > _ZNODE_VERSION_READ:
            raise UnsupportedFeaturesError(
                f"{paths.FEATURE} has format version {version}, and this release of Kalda reads up to "
                f"version {_ZNODE_VERSION_READ}: a newer release wrote it"
            )
        if fields["status"] != _ENABLED:
            return {}
        levels = {
            # Apache Kafka writes an object for each feature.
            name: int(level["max_version_level"] if isinstance(level, dict) else level)
            for name, level in (fields["features"] | fields.get(_OWN, {})).items()
        }
        if levels and not 0 <= min(levels.values()) <= max(levels.values()) <= _LEVEL_MAX:
            raise ValueError(f"a level is not in 0 to {_LEVEL_MAX}")
        return levels
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        found, reason = bytes_text(data), error_text(error)
        logger.error("%s has content that is not a list of features, %s: %s", paths.FEATURE, found, reason)
        return {}
