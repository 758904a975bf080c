"""Keeps what a broker knows of the clients that push metrics: `ClientInstance` and their bounded cache."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from kalda.broker.config.client_metrics import (
    CLIENT_ID,
    CLIENT_INSTANCE_ID,
    CLIENT_SOFTWARE_NAME,
    CLIENT_SOFTWARE_VERSION,
    CLIENT_SOURCE_ADDRESS,
    CLIENT_SOURCE_PORT,
)
from kalda.common.errors import ErrorCode
from kalda.common.types import UUID, uuid_to_text

INSTANCES_MAX: Final = 16_384
"""Clients of one broker, as in Kafka; the one that was silent for longest makes room."""

EXPIRY_MS_MIN: Final = 60_000
_EXPIRY_INTERVALS: Final = 3
_NEVER: Final = float("-inf")


def attributes_of(
    client_instance_id: UUID,
    client_id: str | None,
    software: tuple[str, str],
    address: str,
    port: str,
) -> dict[str, str]:
    """Return a client's attributes for subscriptions to match; a client without an id lacks that one."""
    name, version = software
    attributes = {
        CLIENT_INSTANCE_ID: uuid_to_text(client_instance_id),
        CLIENT_SOFTWARE_NAME: name,
        CLIENT_SOFTWARE_VERSION: version,
        CLIENT_SOURCE_ADDRESS: address,
        CLIENT_SOURCE_PORT: port,
    }
    if client_id is not None:
        attributes[CLIENT_ID] = client_id
    return attributes


class ClientInstance:
    """One client: its subscription, and when it asked and pushed last. Times are monotonic milliseconds."""

    __slots__ = (
        "expires_at",
        "is_new",
        "is_terminating",
        "last_error",
        "last_get",
        "last_push",
        "metrics",
        "push_interval_ms",
        "subscription_id",
        "subscription_version",
    )

    def __init__(
        self, subscription_id: int, subscription_version: int, metrics: Iterable[str], push_interval_ms: int
    ) -> None:
        self.subscription_id: Final = subscription_id
        self.subscription_version: Final = subscription_version
        """The state of all subscriptions from which this one was made."""
        self.metrics: Final = tuple(metrics)
        self.push_interval_ms: Final = push_interval_ms
        self.is_terminating = False
        """Whether the client said that its last push was the last."""
        self.is_new = False
        """Whether the client has got the subscription and not pushed since."""
        self.last_error = ErrorCode.NONE
        self.last_get = _NEVER
        self.last_push = _NEVER
        self.expires_at = _NEVER

    def touch(self, now: float) -> None:
        """Keep the client for another while."""
        self.expires_at = now + max(EXPIRY_MS_MIN, _EXPIRY_INTERVALS * self.push_interval_ms)

    def accept_get(self, now: float, *, is_free: bool) -> bool:
        """Return whether a client may ask now, and note it if so; `is_free` lets it ask before its time."""
        if not is_free and now - max(self.last_get, self.last_push) < self.push_interval_ms:
            return False
        self.last_get = now
        self.is_new = True
        return True

    def accept_push(self, now: float) -> bool:
        """Return whether a client may push now, and note it if so.

        The first push after a new subscription is taken at any time: clients spread it over 50 to 150 % of
        the interval.
        """
        if not self.is_new and now - self.last_push < self.push_interval_ms:
            return False
        self.last_push = now
        self.is_new = False
        return True


class ClientInstances:
    """The clients by id, at most `size_max`; `on_gone` is called with each that is dropped."""

    def __init__(self, on_gone: Callable[[UUID], None], size_max: int = INSTANCES_MAX) -> None:
        self._on_gone: Final = on_gone
        self._size_max: Final = size_max
        self._by_id: Final[OrderedDict[UUID, ClientInstance]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, client_instance_id: UUID) -> bool:
        return client_instance_id in self._by_id

    def get(self, client_instance_id: UUID, now: float) -> ClientInstance | None:
        """Return a client that has not expired."""
        found = self._by_id.get(client_instance_id)
        if found is None:
            return None
        if found.expires_at <= now:
            self._drop(client_instance_id)
            return None
        self._by_id.move_to_end(client_instance_id)
        return found

    def put(self, client_instance_id: UUID, instance: ClientInstance) -> None:
        """Add a client, or replace what was known of it."""
        self._by_id[client_instance_id] = instance
        self._by_id.move_to_end(client_instance_id)
        if len(self._by_id) > self._size_max:
            self._drop(next(iter(self._by_id)))

    def expire(self, now: float) -> None:
        """Drop the clients that have been silent for long."""
        for each in [each for each, instance in self._by_id.items() if instance.expires_at <= now]:
            self._drop(each)

    def _drop(self, client_instance_id: UUID) -> None:
        del self._by_id[client_instance_id]
        self._on_gone(client_instance_id)
