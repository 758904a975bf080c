"""Implements the requests and responses of admin calls on client quotas. Sans-IO."""

from collections.abc import Iterable, Sequence
from typing import Final

from kalda.clients.admin.admin_call import AdminOperation, AdminRequest, Answers, RequestContext
from kalda.clients.admin.quotas import QuotaAlteration, QuotaEntity, QuotaFilter, quota_entity
from kalda.clients.admin.routes import AnyBroker
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

    def what(self, key: None) -> str:
        """Name the call."""
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

    def what(self, key: QuotaEntity) -> str:
        """Name the call."""
        names = (f"default {kind}" if name is None else f"{kind} {name}" for kind, name in key)
        return f"{self.title} {', '.join(names)}"


def _component(each: QuotaFilter) -> ComponentData:
    if each.is_any:
        return ComponentData(entity_type=each.entity_type, match_type=_ANY, match=None)
    match_type = _DEFAULT if each.name is None else _EXACT
    return ComponentData(entity_type=each.entity_type, match_type=match_type, match=each.name)
