"""DescribeClientQuotas (key 48): the quotas of users, client ids and addresses (KIP-546)."""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import BOOL, FLOAT64, INT8, INT16, INT32, STRING, Message, Struct, array, wire


class ComponentData(Struct):
    """What is asked of one part of the entities' names."""

    entity_type: str = wire(STRING, "0+")
    match_type: int = wire(INT8, "0+")
    match: str | None = wire(STRING, "0+", nullable="0+")


class DescribeClientQuotasRequest(
    Message, api_key=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions="0-1", flexible="1+"
):
    """Which entities to describe."""

    components: list[ComponentData] = wire(array(ComponentData), "0+")
    strict: bool = wire(BOOL, "0+")


class EntityData(Struct):
    """One part of an entity's name; None is the default."""

    entity_type: str = wire(STRING, "0+")
    entity_name: str | None = wire(STRING, "0+", nullable="0+")


class ValueData(Struct):
    """One quota."""

    key: str = wire(STRING, "0+")
    value: float = wire(FLOAT64, "0+")


class EntryData(Struct):
    """An entity and its quotas."""

    entity: list[EntityData] = wire(array(EntityData), "0+")
    values: list[ValueData] = wire(array(ValueData), "0+")


class DescribeClientQuotasResponse(
    Message, api_key=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions="0-1", flexible="1+"
):
    """The entities that have quotas."""

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+")
    entries: list[EntryData] | None = wire(array(EntryData), "0+", nullable="0+")
