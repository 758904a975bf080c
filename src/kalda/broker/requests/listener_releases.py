"""Refuses on some listeners what an older release of Apache Kafka would refuse (`kalda.as.version`).

Clients can so be tested with the requests and versions that a release had. Brokers of Kalda connect to the
same listeners; they name themselves in ApiVersions, and their connections are not restricted.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from struct import Struct
from typing import Final
from weakref import WeakSet

from kalda.common.api_keys import ApiKey
from kalda.net.connection import Connection, FrameHandler
from kalda.protocol.messages.api_versions import ApiVersion
from kalda.protocol.namespaces.namespace import base_listener
from kalda.protocol.releases import is_at_least, versions_of

_KEY_AND_VERSION: Final = Struct(">hh")


class ListenerReleases:
    """Keeps the release of Apache Kafka as which each connection is answered."""

    def __init__(self, releases: Mapping[str, str]) -> None:
        """`releases` are known ones, by the listener's name."""
        self._releases = releases
        self._brokers: Final[WeakSet[Connection]] = WeakSet()
        self.restricts_brokers = False
        """Whether brokers are answered as clients are: in a model of a broker of that release."""

    def update(self, releases: Mapping[str, str]) -> None:
        """Replace the releases, as when listeners were added."""
        self._releases = releases

    def of(self, connection: Connection) -> str | None:
        """Return the release as which a connection is answered; None for Kalda's own answers."""
        release = self._releases.get(base_listener(connection.listener))
        return None if release is None or connection in self._brokers else release

    def add_broker(self, connection: Connection) -> None:
        """Note that the peer is a broker of this cluster, which is answered as Kalda does."""
        if self._releases and not self.restricts_brokers:
            self._brokers.add(connection)

    def guarded(self, handle: FrameHandler) -> FrameHandler:
        """Return a frame handler that refuses what a release did not serve and calls `handle` for the rest.

        ApiVersions is never refused here: its handler answers it as the release, or finds that a broker
        asks. Without any release it is `handle` itself, so that nothing is paid for it.
        """
        return self._guard(handle) if self._releases else handle

    def _guard(self, handle: FrameHandler) -> Callable[[Connection, memoryview], None]:
        def on_frame(connection: Connection, frame: memoryview) -> None:
            release = self.of(connection)
            if release is not None and len(frame) >= _KEY_AND_VERSION.size:
                key, version = _KEY_AND_VERSION.unpack_from(frame)
                highest = versions_of(release).get(key, -1)
                if key != ApiKey.API_VERSIONS and not 0 <= version <= highest:
                    connection.close(
                        f"Kafka {release} has no version {version} of API {key}; this listener answers as "
                        "that release (`kalda.as.version`)",
                        logging.INFO,
                    )
                    return
            handle(connection, frame)

        return on_frame


def restricted(served: Iterable[ApiVersion], release: str) -> list[ApiVersion]:
    """Return what of the served versions a release had."""
    highest = versions_of(release)
    return [
        ApiVersion(
            api_key=each.api_key,
            min_version=each.min_version,
            max_version=min(each.max_version, highest[ApiKey(each.api_key)]),
        )
        for each in served
        if highest.get(ApiKey(each.api_key), -1) >= each.min_version
    ]


def has_versions_in_refusal(release: str) -> bool:
    """Whether the release names its versions when it refuses that of an ApiVersions request (KIP-511)."""
    return is_at_least(release, "2.4")
