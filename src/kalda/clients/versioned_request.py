"""Describes a request whose fields depend on the version that a broker turns out to know."""

from collections.abc import Callable
from dataclasses import dataclass

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import Message


@dataclass(frozen=True, slots=True)
class VersionedRequest:
    """A request that is built when its version is known."""

    api_key: ApiKey
    build: Callable[[int], Message]
    """Returns the request for a version."""
    version_max: int | None = None
    """The highest version that the caller can use; None for the highest that this client knows."""
    version_min: int = 0
    """The lowest version that can express what the caller wants."""
