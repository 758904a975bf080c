"""Agrees on versions of requests with a broker: the ApiVersions exchange and its result. Sans-IO.

A connection sends `ApiVersionsNegotiation.request`, passes each response to `received`, and repeats this
until `received` returns the broker's `NodeApiVersions`.

Invariant: a version is chosen from what the broker announced on this very connection. A broker may be
replaced by another release while a client runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kalda import __version__
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.net.client.client_errors import BrokerResponseError, UnsupportedApiError
from kalda.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kalda.protocol.registry import spec
from kalda.protocol.schema import VersionRange

CLIENT_SOFTWARE_NAME: Final = "kalda"
BROKER_SOFTWARE_NAME: Final = "kalda-broker"
"""How brokers name themselves to each other."""
VERSION_MAX: Final = 4
"""Version 5 is not sent: it adds only the names of cluster and broker, which Kalda's clients do not give, and
brokers before Kafka 4.4 would need a second round."""

_version_range: Final = lru_cache(maxsize=1024)(VersionRange)
"""Every connection is given the same ranges again, about a hundred."""


@dataclass(frozen=True, slots=True)
class NodeApiVersions:
    """The versions and features that one broker announced."""

    peer: str
    """The broker's address, for messages."""
    ranges: Mapping[int, VersionRange]
    finalized_features: Mapping[str, int]
    """The levels of the features that the whole cluster runs, e.g. ``{"transaction.version": 2}``
    (KIP-584)."""
    finalized_features_epoch: int = -1

    def supports(self, api_key: ApiKey, version: int = 0) -> bool:
        """Whether both sides know the request in `version` or a higher one."""
        shared = highest_shared_version(spec(api_key).versions, self.ranges.get(api_key))
        return shared is not None and shared >= version

    def latest(self, api_key: ApiKey, version_max: int | None = None, version_min: int = 0) -> int:
        """Return the highest version of a request that both sides know, within the given bounds.

        Raises:
            UnsupportedApiError: there is none.
        """
        ours = spec(api_key).versions
        highest = ours.highest if version_max is None else min(ours.highest, version_max)
        ours = VersionRange(max(ours.lowest, version_min), highest)
        theirs = self.ranges.get(api_key)
        version = highest_shared_version(ours, theirs)
        if version is None:
            offered = "no version" if theirs is None else f"versions {theirs.lowest} to {theirs.highest}"
            raise UnsupportedApiError(
                f"broker {self.peer} offers {offered} of {api_key.title}; "
                f"this call needs one of {ours.lowest} to {ours.highest}"
            )
        return version


class ApiVersionsNegotiation:
    """One exchange of ApiVersions; an older broker takes two rounds (KIP-511)."""

    def __init__(self, peer: str, software_name: str = CLIENT_SOFTWARE_NAME) -> None:
        self._peer: Final = peer
        self.request: Final = ApiVersionsRequest(
            client_software_name=software_name, client_software_version=__version__
        )
        self.version = VERSION_MAX
        """The version to send the request in."""

    def received(self, response: ApiVersionsResponse) -> NodeApiVersions | None:
        """Take a response; return the result, or None when the request must be sent in the new `version`.

        Raises:
            BrokerResponseError: the broker answered with an error.
        """
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and self.version > 0:
            # An older broker answers in version 0, with the versions that it has (KIP-511).
            ranges = {each.api_key: each for each in response.api_keys}
            known = ranges.get(ApiKey.API_VERSIONS)
            self.version = min(known.max_version, self.version - 1) if known is not None else 0
            return None
        if response.error_code != ErrorCode.NONE:
            raise BrokerResponseError(ErrorCode.of(response.error_code), f"ApiVersions from {self._peer}")
        return NodeApiVersions(
            self._peer,
            {each.api_key: _version_range(each.min_version, each.max_version) for each in response.api_keys},
            {each.name: each.max_version_level for each in response.finalized_features},
            response.finalized_features_epoch,
        )


def highest_shared_version(ours: VersionRange, theirs: VersionRange | None) -> int | None:
    """Return the highest version in both ranges, or None.

    Example: ours 0-12 and theirs 4-17 share 12; ours 0-3 and theirs 4-17 share none.
    """
    if theirs is None:
        return None
    highest = min(ours.highest, theirs.highest)
    return highest if highest >= max(ours.lowest, theirs.lowest) else None
