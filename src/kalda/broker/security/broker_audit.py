"""Audits one broker: the logins of its clients, the requests it denied, the changes it made."""

from collections.abc import Collection
from itertools import islice
from typing import Any, Final

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID, uuid_to_text
from kalda.net.connection import Connection
from kalda.security.acl.model import AclOperation, ResourceType
from kalda.security.audit import DENIED, FAILURE, SUCCESS, AuditLog
from kalda.security.quota.entity import DEFAULT

_NAMES: Final = ("name", "resource_name", "resource_name_filter", "user", "group_id", "group", "topic_id")
_LISTS: Final = (
    "topics",
    "resources",
    "creations",
    "filters",
    "deletions",
    "upsertions",
    "groups_names",
    "topic_names",
    "feature_updates",
    "dirs",
    "entries",
)
"""The fields of those requests that list what is changed."""

_NAMES_MAX: Final = 20
_ITEMS_MAX: Final = 1_000
"""Items of a list that are looked at for names, as they may all have the same one."""

AUDIT_INTERVAL_MS: Final = 10_000
"""How often it is noted how many events were above the limits."""


class BrokerAudit:
    """Turns what happens on one broker into events."""

    def __init__(self) -> None:
        self._log: Final = AuditLog()

    def report_suppressed(self) -> None:
        """Note how many events were above the limits; for a timer."""
        self._log.report_suppressed()

    def login(self, connection: Connection, reason: str | None) -> None:
        """Note an attempt to authenticate; `reason` is why it failed, or None."""
        self._log.write(
            "login",
            SUCCESS if reason is None else FAILURE,
            address=connection.peer_address,
            principal=str(connection.principal) if reason is None else None,
            listener=connection.listener,
            reason=reason,
        )

    def denial(
        self, connection: Connection, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> None:
        """Note an operation that ACLs denied."""
        self._log.write(
            "request",
            DENIED,
            address=connection.peer_address,
            principal=str(connection.principal),
            operation=operation.title,
            resource=f"{resource_type.title}:{name}",
        )

    def change(
        self, connection: Connection, api_key: ApiKey, request: object, error_codes: Collection[int]
    ) -> None:
        """Note a request of an administrator that changed the cluster, or tried to."""
        self._log.write(
            "change",
            FAILURE if error_codes else SUCCESS,
            address=connection.peer_address,
            principal=str(connection.principal),
            request=api_key.title,
            resources=_names_of(request) or None,
            errors=sorted(set(error_codes)) or None,
        )


def _names_of(request: Any) -> list[str]:
    """Return the names of what a request changes, the first of them."""
    group_id = getattr(request, "group_id", None)
    found: list[str] = [] if group_id is None else [group_id]
    for field in _LISTS:
        for item in islice(getattr(request, field, None) or (), _ITEMS_MAX):
            if isinstance(item, str):
                found.append(item)
            else:
                name = _entity_name(getattr(item, "entity", ())) or next(
                    (each for name in _NAMES if (each := getattr(item, name, None))), None
                )
                found += [] if name is None else [uuid_to_text(name) if isinstance(name, UUID) else str(name)]
    return list(dict.fromkeys(found))[:_NAMES_MAX]


def _entity_name(parts: Any) -> str | None:
    """Return the name of an entity that has quotas."""
    named = (
        f"{part.entity_type}:{DEFAULT if part.entity_name is None else part.entity_name}" for part in parts
    )
    return ",".join(named) or None
