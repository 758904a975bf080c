"""Defines what a quota is set for: a user, a client id, both, or an address; each may be the default.

The names in an entity are those in paths of ZooKeeper, percent-encoded. A default is ``<default>`` there,
which no encoded name equals. The colons of an address are not encoded: Apache Kafka resolves what is there,
and does not start if it cannot.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kalda.common.sanitizer import desanitize, sanitize

DEFAULT: Final = "<default>"

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
"""The types of entities in requests."""

USERS: Final = "users"
CLIENTS: Final = "clients"
IPS: Final = "ips"
"""The types of entities in ZooKeeper, below ``/config``."""

_COLON: Final = "%3A"


CLIENT_ID_LENGTH_MAX: Final = 255
"""Characters of a client id by which clients are distinguished. Peers may send 32,767, and what is kept of
each client must be bounded."""


class QuotaEntity(NamedTuple):
    """A user and a client id, one of them, or an address."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @classmethod
    def of(cls, names: Mapping[str, str | None]) -> "QuotaEntity":
        """Return the entity that a request names by types; a name of None is the default.

        Raises:
            ValueError: it names nothing, a type that does not exist, or an address beside others.
        """
        if not names:
            raise ValueError("Invalid empty client quota entity")
        for entity_type, name in names.items():
            if entity_type not in (USER, CLIENT_ID, IP):
                allowed = f"{USER}, {CLIENT_ID}, {IP}"
                raise ValueError(f"Unhandled client quota entity type: {entity_type}; allowed are {allowed}")
            if name in ("", ".", ".."):
                raise ValueError(f'{entity_type} "{name}" cannot have a quota: it cannot stand in a path')
            if entity_type == CLIENT_ID and len(name or "") > CLIENT_ID_LENGTH_MAX:
                raise ValueError(
                    f"a {CLIENT_ID} of {len(name or '')} characters cannot have a quota; "
                    f"at most {CLIENT_ID_LENGTH_MAX} are compared"
                )
        if IP in names and len(names) > 1:
            raise ValueError(f"Invalid quota entity combination: {', '.join(names)}; {IP} stands alone")
        parts = {entity_type: _path_name(entity_type, name) for entity_type, name in names.items()}
        return cls(parts.get(USER), parts.get(CLIENT_ID), parts.get(IP))

    @classmethod
    def at(cls, entity_type: str, entity_name: str) -> "QuotaEntity | None":
        """Return the entity whose settings are at ``/config/<type>/<name>``; None if it has no quotas."""
        if entity_type == USERS:
            user, separator, client_id = entity_name.partition(f"/{CLIENTS}/")
            return cls(user=user, client_id=client_id if separator else None)
        if entity_type == CLIENTS:
            return cls(client_id=entity_name)
        return cls(ip=entity_name.replace(_COLON, ":")) if entity_type == IPS else None

    @property
    def location(self) -> tuple[str, str]:
        """The type and name of its settings in ZooKeeper."""
        if self.user is not None:
            return USERS, self.user if self.client_id is None else f"{self.user}/{CLIENTS}/{self.client_id}"
        if self.client_id is not None:
            return CLIENTS, self.client_id
        assert self.ip is not None, "an entity names something"
        return IPS, self.ip

    @property
    def former_location(self) -> tuple[str, str] | None:
        """Where the first releases stored the settings of an address with colons."""
        return None if self.ip is None or ":" not in self.ip else (IPS, self.ip.replace(":", _COLON))

    @property
    def names(self) -> dict[str, str | None]:
        """The names by type as requests have them; None is the default."""
        parts = {USER: self.user, CLIENT_ID: self.client_id, IP: self.ip}
        return {
            entity_type: None if name == DEFAULT else desanitize(name)
            for entity_type, name in parts.items()
            if name is not None
        }

    def __str__(self) -> str:
        named = self.names.items()
        return ", ".join(f"default {kind}" if name is None else f'{kind} "{name}"' for kind, name in named)


def _path_name(entity_type: str, name: str | None) -> str:
    if name is None:
        return DEFAULT
    encoded = sanitize(name)
    return encoded.replace(_COLON, ":") if entity_type == IP else encoded
