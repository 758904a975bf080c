"""Implements the admin client's operations on client quotas (KIP-546).

It holds the methods, the values that they take and return, and the requests and responses.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kalda.clients.admin.admin_call import AdminOperation, AdminRequest, Answers, RequestContext
from kalda.clients.admin.admin_methods import AdminMethods
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.admin.routes import AnyBroker
from kalda.common.overriding import override
from kalda.common.public import public
from kalda.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from kalda.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

QuotaEntity = tuple[tuple[str, str | None], ...]
"""The parts of an entity's name, as sorted pairs of a type (``user``, ``client-id``, ``ip``) and a name; None
is the default of the type."""


@public
def quota_entity(names: dict[str, str | None]) -> QuotaEntity:
    """Return the entity with these names by type.

    >>> quota_entity({"user": "alice", "client-id": None})
    (('client-id', None), ('user', 'alice'))
    """
    return tuple(sorted(names.items()))


@public
@dataclass(frozen=True, slots=True)
class QuotaFilter:
    """Selects entities by one part of their names."""

    entity_type: str
    """``user``, ``client-id`` or ``ip``."""
    name: str | None = None
    """The name; None for the default, or for any name if `is_any`."""
    is_any: bool = False
    """Whether every name fits, and the default too."""


@public
@dataclass(frozen=True, slots=True)
class QuotaAlteration:
    """The changes of one entity's quotas."""

    entity: QuotaEntity
    quotas: dict[str, float | None] = field(default_factory=dict)
    """The values by name, e.g. ``producer_byte_rate``; None removes a quota."""


class QuotaMethods(AdminMethods):
    """Describes and alters quotas of users, client ids and addresses (brokers 2.6 and newer, KIP-546)."""

    async def describe_client_quotas(
        self, filters: Iterable[QuotaFilter] = (), *, strict: bool = False, timeout_ms: int | None = None
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Describe the quotas of entities.

        Args:
            filters: What the parts of an entity's name must be; without a filter, all entities.
            strict: Whether entities with other parts in their names are left out.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By entity, the values of its quotas by name.

        Raises:
            ClientError: a filter is not possible, or no broker answered in time.
        """
        return await self._run_one(DescribeQuotas(filters, is_strict=strict), timeout_ms)

    async def alter_client_quotas(
        self,
        alterations: Iterable[QuotaAlteration],
        *,
        validate_only: bool = False,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[QuotaEntity, None]:
        """Set and remove quotas.

        Args:
            alterations: What to change; the changes of one entity are made together or not at all.
            validate_only: Whether to check the changes only.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By entity, None or the error: INVALID_REQUEST for a quota that does not exist or a bad value.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        operation = AlterQuotas(alterations, validate_only=validate_only)
        return await self._run(operation, operation.entities, timeout_ms, outcomes=outcomes)


Quotas = dict[QuotaEntity, dict[str, float]]

_EXACT: Final = 0
_DEFAULT: Final = 1
_ANY: Final = 2


class DescribeQuotas(AdminOperation[None, Quotas]):
    """Describes the quotas of the entities that filters select. Its only key is None."""

    title = "describe quotas"
    route = AnyBroker()

    def __init__(self, filters: Iterable[QuotaFilter], *, is_strict: bool) -> None:
        self._components: Final = [_component(each) for each in filters]
        self._is_strict: Final = is_strict

    def requests(self, keys: Sequence[None], context: RequestContext) -> Iterable[AdminRequest[None, Quotas]]:
        """Ask for all of them."""

        def read(response: DescribeClientQuotasResponse, answers: Answers[None, Quotas]) -> None:
            if response.error_code:
                answers.fail(None, response.error_code, response.error_message)
                return
            found: Quotas = {}
            for entry in response.entries or ():
                entity = quota_entity({part.entity_type: part.entity_name for part in entry.entity})
                found[entity] = {each.key: each.value for each in entry.values}
            answers.succeed(None, found)

        message = DescribeClientQuotasRequest(components=self._components, strict=self._is_strict)
        yield AdminRequest.of(message, DescribeClientQuotasResponse, keys, read)

    @override
    def what(self, key: None) -> str:
        return self.title


class AlterQuotas(AdminOperation[QuotaEntity, None]):
    """Sets and removes quotas; the keys are entities."""

    title = "alter quotas of"
    route = AnyBroker()

    def __init__(self, alterations: Iterable[QuotaAlteration], *, validate_only: bool) -> None:
        self._alterations: Final = {each.entity: each.quotas for each in alterations}
        self._validate_only: Final = validate_only

    @property
    def entities(self) -> list[QuotaEntity]:
        """The entities that are altered."""
        return list(self._alterations)

    def requests(
        self, keys: Sequence[QuotaEntity], context: RequestContext
    ) -> Iterable[AdminRequest[QuotaEntity, None]]:
        """Send all entities in one request."""
        message = AlterClientQuotasRequest(
            entries=[
                EntryData(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in key],
                    ops=[
                        OpData(key=name, value=0.0 if value is None else value, remove=value is None)
                        for name, value in self._alterations[key].items()
                    ],
                )
                for key in keys
            ],
            validate_only=self._validate_only,
        )

        def read(response: AlterClientQuotasResponse, answers: Answers[QuotaEntity, None]) -> None:
            for each in response.entries:
                entity = quota_entity({part.entity_type: part.entity_name for part in each.entity})
                if each.error_code:
                    answers.fail(entity, each.error_code, each.error_message)
                else:
                    answers.succeed(entity, None)

        yield AdminRequest.of(message, AlterClientQuotasResponse, keys, read)

    @override
    def what(self, key: QuotaEntity) -> str:
        names = (f"default {kind}" if name is None else f"{kind} {name}" for kind, name in key)
        return f"{self.title} {', '.join(names)}"


def _component(each: QuotaFilter) -> ComponentData:
    if each.is_any:
        return ComponentData(entity_type=each.entity_type, match_type=_ANY, match=None)
    match_type = _DEFAULT if each.name is None else _EXACT
    return ComponentData(entity_type=each.entity_type, match_type=match_type, match=each.name)
