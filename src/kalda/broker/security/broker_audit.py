"""Audits one broker: the logins of its clients, the requests it denied, the changes it made."""

from collections.abc import Collection, Iterable
from itertools import islice
from typing import Final

from kalda.broker.security.authorizer import Client
from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID, uuid_to_text
from kalda.events.event import NO_EVENTS, EventKind, EventSink
from kalda.net.connection import Connection
from kalda.security.acl.model import AclOperation, ResourceType
from kalda.security.audit import DENIED, FAILURE, SUCCESS, AuditLog

_NAMES_MAX: Final = 20
_ITEMS_MAX: Final = 1_000
"""Names that are looked at, as they may all be the same."""

AUDIT_INTERVAL_MS: Final = 10_000
"""The time between two log lines with the number of events above the limits."""


class BrokerAudit:
    """Turns what happens on one broker into events."""

    def __init__(self) -> None:
        self._log: Final = AuditLog()
        self.events: EventSink = NO_EVENTS
        """Takes failed logins and denied requests; set by the broker."""

    def report_suppressed(self) -> None:
        """Log the number of events above the limits; a timer calls this."""
        self._log.report_suppressed()

    def login(self, connection: Connection, reason: str | None) -> None:
        """Log an attempt to authenticate; `reason` is why it failed, or None."""
        if reason is not None:
            self.events.emit_seldom(
                EventKind.LOGIN_FAILED,
                {"host": connection.peer_address},
                {"reason": reason, "listener": connection.listener},
            )
        self._log.write(
            "login",
            SUCCESS if reason is None else FAILURE,
            address=connection.peer_address,
            principal=str(connection.principal) if reason is None else None,
            listener=connection.listener,
            reason=reason,
        )

    def denial(
        self, connection: Client, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> None:
        """Log an operation that ACLs denied."""
        self.events.emit_seldom(
            EventKind.ACCESS_DENIED,
            {"user": connection.principal.name, "host": connection.peer_address},
            {"reason": f"{operation.title} on {resource_type.title}:{name}"},
        )
        self._log.write(
            "request",
            DENIED,
            address=connection.peer_address,
            principal=str(connection.principal),
            operation=operation.title,
            resource=f"{resource_type.title}:{name}",
        )

    def change(
        self,
        connection: Connection,
        api_key: ApiKey,
        names: Iterable[object],
        error_codes: Collection[int],
    ) -> None:
        """Log a request of an administrator that changed the named resources, or tried to."""
        self._log.write(
            "change",
            FAILURE if error_codes else SUCCESS,
            address=connection.peer_address,
            principal=str(connection.principal),
            request=api_key.title,
            resources=_texts(names) or None,
            errors=sorted(set(error_codes)) or None,
        )


def _texts(names: Iterable[object]) -> list[str]:
    """Return the first of some names, each once."""
    found = (
        uuid_to_text(each) if isinstance(each, UUID) else str(each)
        for each in islice(names, _ITEMS_MAX)
        if each
    )
    return list(dict.fromkeys(found))[:_NAMES_MAX]
