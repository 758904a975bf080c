"""DescribeClientQuotas (key 48), versions 0-1: the quotas of users, client ids and addresses (KIP-546).

v1 is flexible. The response lists what ZooKeeper has.
"""

from functools import partial
from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks.check import cluster
from kalda.broker.security.stored_quotas import StoredQuotas
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from kalda.security.acl.model import AclOperation
from kalda.security.quota.entity import QuotaEntity
from kalda.security.quota.filter import FilterPart, QuotaFilter, UnknownEntityTypeError


async def handle(
    stored_quotas: StoredQuotas, request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    """Return the entities that the request asks for."""
    parts = [FilterPart(each.entity_type, each.match_type, each.match) for each in request.components]
    try:
        wanted = QuotaFilter(parts, is_strict=request.strict)
    except UnknownEntityTypeError as error:
        return _failed(ErrorCode.UNSUPPORTED_VERSION, str(error))
    except ValueError as error:
        return _failed(ErrorCode.INVALID_REQUEST, str(error))
    found = await stored_quotas.read()
    return DescribeClientQuotasResponse(
        entries=[_entry(entity, quotas) for entity, quotas in found.items() if wanted.accepts(entity)]
    )


def _entry(entity: QuotaEntity, quotas: dict[str, float]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.names.items()],
        values=[ValueData(key=name, value=value) for name, value in sorted(quotas.items())],
    )


def _failed(code: ErrorCode, message: str) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)


def error_response(request: DescribeClientQuotasRequest, code: ErrorCode) -> DescribeClientQuotasResponse:
    """Return a response with the error."""
    return _failed(code, code.message)


HANDLER: Final = ApiHandler(
    key=ApiKey.DESCRIBE_CLIENT_QUOTAS,
    versions=(0, 1),
    build=lambda services: partial(handle, services.access.stored_quotas),
    error_response=error_response,
    access=cluster(AclOperation.DESCRIBE_CONFIGS),
)
