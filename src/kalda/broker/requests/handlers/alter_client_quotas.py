"""AlterClientQuotas (key 49), versions 0-1: sets and removes quotas (KIP-546).

v1 is flexible. Any broker serves it: the quotas are written to ZooKeeper, from where all brokers follow them.
An entity with an impossible change keeps all its quotas; the changes of other entities are made.
"""

from collections import Counter
from functools import partial
from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks.check import cluster
from kalda.broker.security.client_throttle import ClientThrottle
from kalda.broker.security.stored_quotas import StoredQuotas
from kalda.cluster.history.author import requester_details
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.turns import between
from kalda.events.event import EventKind, Plain
from kalda.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
    EntryResult,
)
from kalda.security.acl.model import AclOperation
from kalda.security.quota.connection_rates import plain_address
from kalda.security.quota.entity import DEFAULT, IP, QuotaEntity
from kalda.security.quota.settings import quota_text

Names = tuple[tuple[str, str | None], ...]
"""The parts of an entity's name, by type."""


async def handle(
    quotas: StoredQuotas, throttle: ClientThrottle, request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    """Check and make the changes."""
    counts = Counter(map(_names, request.entries))
    results = []
    for index, entry in enumerate(request.entries):
        await between(index)
        names = _names(entry)
        result = EntryResult(entity=entry.entity)
        try:
            if counts[names] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "The entity is named twice in one request.")
            await _alter(quotas, throttle, entry, names, validate_only=request.validate_only)
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return AlterClientQuotasResponse(entries=results)


async def _alter(
    quotas: StoredQuotas, throttle: ClientThrottle, entry: EntryData, names: Names, *, validate_only: bool
) -> None:
    """Make the changes of one entity.

    Raises:
        ApiError: one of them is not possible; none was made.
    """
    if len(dict(names)) < len(names):
        raise ApiError(ErrorCode.INVALID_REQUEST, "An entity has two names of one type.")
    try:
        entity = QuotaEntity.of(dict(names))
        if entity.ip is not None:
            await _require_address(throttle, dict(names)[IP])
        changes: dict[str, str | None] = {}
        for op in entry.ops:
            if op.key in changes:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"{op.key} is changed twice.")
            text = quota_text(op.key, 1.0 if op.remove else op.value, of_ip=entity.ip is not None)
            changes[op.key] = None if op.remove else text
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None
    if not validate_only:
        await quotas.alter(entity, changes)
        subject: dict[str, str | int] = {
            key: name or "<default>" for kind, name in names if (key := _SUBJECTS.get(kind)) is not None
        }
        details: dict[str, Plain] = {"changes": dict(changes), **requester_details()}
        throttle.events.emit(EventKind.QUOTA_CHANGED, subject, details)


_SUBJECTS: Final = {"user": "user", "client-id": "client", "ip": "host"}
"""What an event is about, by the type of a quota's entity."""


async def _require_address(throttle: ClientThrottle, name: str | None) -> None:
    """Check that a host has an address; None is the default of all. The quota keeps the name, as in Kafka.

    Raises:
        ValueError: it is neither an address nor the name of a host.
    """
    if name is None:
        return
    try:
        plain_address(name)
    except ValueError:
        if await throttle.address_of(name) is None:
            raise ValueError(f"{name} is not a valid IP or resolvable host.") from None


def _names(entry: EntryData) -> Names:
    return tuple((part.entity_type, part.entity_name) for part in entry.entity)


def _audited(entry: EntryData) -> str:
    return ",".join(
        f"{part.entity_type}:{DEFAULT if part.entity_name is None else part.entity_name}"
        for part in entry.entity
    )


def error_response(request: AlterClientQuotasRequest, code: ErrorCode) -> AlterClientQuotasResponse:
    """Return a response with the error for each entity."""
    return AlterClientQuotasResponse(
        entries=[
            EntryResult(entity=entry.entity, error_code=code, error_message=code.message)
            for entry in request.entries
        ]
    )


HANDLER: Final = ApiHandler(
    key=ApiKey.ALTER_CLIENT_QUOTAS,
    versions=(0, 1),
    build=lambda services: partial(handle, services.access.stored_quotas, services.access.throttle),
    error_response=error_response,
    access=cluster(AclOperation.ALTER_CONFIGS),
    audit=lambda request: map(_audited, request.entries),
)
