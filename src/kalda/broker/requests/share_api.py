"""Makes the records of the APIs of share groups, whose modules are imported when a request first needs them.

A broker has to know the keys and versions of all APIs at its start. What few clusters use need not cost the
others processor time and memory.
"""

from importlib import import_module
from typing import Any

from kalda.broker.requests.api import ApiHandler, AuditNames
from kalda.common.api_keys import ApiKey


def share_api(
    key: ApiKey, versions: tuple[int, int], *, is_of_brokers: bool = False, audit: AuditNames | None = None
) -> ApiHandler:
    """Return the record of an API, whose module of the package `share` is named after the key.

    The module has `build`, `error_response` and `ACCESS`.
    """

    def module() -> Any:
        return import_module(f"kalda.broker.requests.share.{key.name.lower()}")

    return ApiHandler(
        key=key,
        versions=versions,
        build=lambda services: module().build(services),
        error_response=lambda request, code: module().error_response(request, code),
        access=lambda context: module().ACCESS(context),
        is_built_when_used=True,
        is_of_brokers=is_of_brokers,
        is_throttled=not is_of_brokers,
        audit=audit,
    )
