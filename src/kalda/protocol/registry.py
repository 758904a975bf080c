"""Registers the messages with their versions, and every exception to the rules of the wire format.

A message module is imported when its API is first used, so a broker's start does not pay for it. Every
special case of the protocol (a header, an answer in another version, no answer at all) is an entry of a
table at the top of this module, never a condition in the code that meets it.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Final, NamedTuple

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import VERSION_MAX, Message, VersionRange

_UNDECLARED: Final = frozenset((ApiKey.ENVELOPE,))
"""Keys that only have names here: other brokers advertise them, and tools print what they advertise."""

_MODULES: Final[dict[ApiKey, str]] = {
    key: f"kalda.protocol.messages.{key.name.lower()}" for key in ApiKey if key not in _UNDECLARED
}
"""The messages of each key: a module named after it."""

WITHOUT_CLIENT_ID: Final[frozenset[tuple[int, int]]] = frozenset({(ApiKey.CONTROLLED_SHUTDOWN, 0)})
"""The key and version whose header has no client id; brokers of Kafka 0.8 sent it."""

_UNTAGGED_RESPONSES: Final[frozenset[int]] = frozenset({ApiKey.API_VERSIONS})
"""A client that probes an older broker must be able to read the answer whatever the version (KIP-511)."""

UNKNOWN_VERSION_ANSWERS: Final[dict[ApiKey, int]] = {
    # Asked in a version that it does not know, a broker answers in this one, with UNSUPPORTED_VERSION
    # (KIP-511). For every other API the connection is closed.
    ApiKey.API_VERSIONS: 0,
}

_SILENT_REQUESTS: Final[dict[ApiKey | None, Callable[[Message], bool]]] = {
    # With acks=0 not even an error is sent; the broker closes the connection instead.
    ApiKey.PRODUCE: lambda request: getattr(request, "acks", None) == 0,
}

_FLEXIBLE_FROM: Final[dict[int, int]] = {}
"""The cached results of `flexible_from`: one look-up per request instead of a call of `spec`."""


class ApiSpec(NamedTuple):
    """One API as declared; a broker may serve fewer versions than exist here."""

    api_key: ApiKey
    request_class: type[Message]
    response_class: type[Message]
    versions: VersionRange
    flexible_from: int
    """The first flexible version (KIP-482); above `versions.highest` when there is none."""


def declared_keys() -> tuple[ApiKey, ...]:
    """Every API that has a declaration, in order of key."""
    return tuple(sorted(_MODULES))


@cache
def spec(api_key: ApiKey | int) -> ApiSpec:
    """Look an API up, importing its module the first time.

    Raises:
        KeyError: no such API is declared.
    """
    key = ApiKey(api_key) if api_key in _MODULES else None
    if key is None:
        raise KeyError(f"API key {api_key} is not declared")
    module = import_module(_MODULES[key])
    request_class: type[Message] = getattr(module, f"{key.title}Request")
    response_class: type[Message] = getattr(module, f"{key.title}Response")
    schema = request_class.SCHEMA
    return ApiSpec(key, request_class, response_class, schema.versions, _flexible_from(request_class))


def flexible_from(api_key: ApiKey | int) -> int:
    """The first flexible version of an API; above every version for one that is not declared."""
    first = _FLEXIBLE_FROM.get(api_key)
    if first is None:
        first = spec(api_key).flexible_from if api_key in _MODULES else VERSION_MAX + 1
        if api_key in _MODULES:
            _FLEXIBLE_FROM[ApiKey(api_key)] = first
    return first


def request_header_version(api_key: ApiKey | int, version: int) -> int:
    """The version of the header that a request of this version has: 2 when flexible, else 1.

    Version 0, without a client id, belongs to ControlledShutdown v0 alone.
    """
    if (api_key, version) in WITHOUT_CLIENT_ID:
        return 0
    return 2 if version >= spec(api_key).flexible_from else 1


def response_header_version(api_key: ApiKey | int, version: int) -> int:
    """The version of the header that the response to a request of this version has."""
    return 1 if version >= tagged_response_headers_from(api_key) else 0


def tagged_response_headers_from(api_key: ApiKey | int) -> int:
    """The first version whose response has a header of version 1; above every version if none has."""
    return VERSION_MAX + 1 if api_key in _UNTAGGED_RESPONSES else spec(api_key).flexible_from


def expects_response(request: Message) -> bool:
    """Whether a broker answers this request at all."""
    is_silent = _SILENT_REQUESTS.get(request.SCHEMA.api_key)
    return is_silent is None or not is_silent(request)


def _flexible_from(message_class: type[Message]) -> int:
    schema = message_class.SCHEMA
    flexible = schema.flexible
    return flexible.lowest if flexible.lowest <= flexible.highest else schema.versions.highest + 1
