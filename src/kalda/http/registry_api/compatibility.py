"""Serves ``/compatibility``."""

from collections.abc import Sequence

from kalda.http.errors import HttpError
from kalda.http.registry.contents import Json
from kalda.http.registry.errors import (
    invalid_schema,
    version_not_found,
)
from kalda.http.registry.state import Version
from kalda.http.registry_api.calls import Call, requested_content
from kalda.http.registry_api.requests import (
    json_object,
    version_number,
)


async def check_version(call: Call) -> object:
    """Check a schema against one version of a subject."""
    subject, number = call.subject(2), version_number(call.segment(4))
    version = call.registry.state.version(subject, number)
    if version is None and number != -1:
        raise version_not_found(number)
    return await _check(call, subject, [] if version is None else [version])


async def check_subject(call: Call) -> object:
    """Check a schema as registering it would."""
    subject = call.subject(2)
    versions = [each for each in call.registry.state.versions(subject) if not each.is_deleted]
    return await _check(call, subject, versions)


async def _check(call: Call, subject: str, against: Sequence[Version]) -> object:
    registry, target = call.registry, call.target
    content = await requested_content(call, subject, json_object(call.body))
    if content.is_empty:
        raise invalid_schema("Empty schema")
    is_normalized = target.flag("normalize") or registry.config(subject).get("normalize") is True
    is_verbose = target.flag("verbose")
    try:
        messages = await registry.check(subject, content, against, is_normalized=is_normalized)
    except HttpError as error:
        if not is_verbose or error.code != 42201:
            raise
        messages = [error.message]
    call.done()
    answer: Json = {"is_compatible": not messages}
    if is_verbose:
        answer["messages"] = messages
    return answer
