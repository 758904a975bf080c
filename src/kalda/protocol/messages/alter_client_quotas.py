"""AlterClientQuotas (key 49): sets and removes quotas of users, client ids and addresses (KIP-546)."""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import BOOL, FLOAT64, INT16, INT32, STRING, Message, Struct, array, wire


class EntityData(Struct):
    """One part of an entity's name; None is the default."""

    entity_type: str = wire(STRING, "0+")
    entity_name: str | None = wire(STRING, "0+", nullable="0+")


class OpData(Struct):
    """One change."""

    key: str = wire(STRING, "0+")
    value: float = wire(FLOAT64, "0+")
    remove: bool = wire(BOOL, "0+")


class EntryData(Struct):
    """An entity and what to change."""

    entity: list[EntityData] = wire(array(EntityData), "0+")
    ops: list[OpData] = wire(array(OpData), "0+")


class AlterClientQuotasRequest(Message, api_key=ApiKey.ALTER_CLIENT_QUOTAS, versions="0-1", flexible="1+"):
    """The quotas to change."""

    entries: list[EntryData] = wire(array(EntryData), "0+")
    validate_only: bool = wire(BOOL, "0+")


class EntryResult(Struct):
    """The result for one entity."""

    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+")
    entity: list[EntityData] = wire(array(EntityData), "0+")


# Kafka's name for it, which the request's entries have too.
EntryResult.__name__ = "EntryData"


class AlterClientQuotasResponse(Message, api_key=ApiKey.ALTER_CLIENT_QUOTAS, versions="0-1", flexible="1+"):
    """One entry per entity."""

    throttle_time_ms: int = wire(INT32, "0+")
    entries: list[EntryResult] = wire(array(EntryResult), "0+")
