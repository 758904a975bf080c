"""Caches the responses of a schema registry, and requests missing ones where a caller may wait."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from kalda.clients.errors import SerializationError
from kalda.clients.serde import LoadRequiredError
from kalda.common.extras import missing_package
from kalda.common.public import public_in
from kalda.runtime.system.clock import monotonic
from kalda.serializers.registry_options import RegistryOptions

if TYPE_CHECKING:
    from kalda.formats.registry import RegistryClient

V = TypeVar("V")
K = TypeVar("K")

_KNOWN_MAX: Final = 1_000
"""Schemas of a serializer; topics and ids beyond are asked for again."""
_REFUSED_SECONDS: Final = 10.0
"""How long an id that the registry does not know, or a schema that is malformed, is not asked for again."""


@public_in("kalda.serializers")
class SchemaRegistryError(SerializationError):
    """The schema registry does not answer or refuses a schema; the record itself may be good."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    reason: str
    until: float


class KnownSchemas(Generic[K, V]):
    """What a registry said, by subject or id; safe for several threads.

    Args:
        options: How the registry is reached.
        ask: Asks a registry; raises `UnknownSchemaError` for what it lacks, ValueError for what is malformed.
    """

    def __init__(self, options: RegistryOptions, ask: "Callable[[RegistryClient, K], V]") -> None:
        self._options: Final = options
        self._ask: Final = ask
        self._known: Final[OrderedDict[K, V | _Refusal]] = OrderedDict()
        self._lock: Final = threading.Lock()
        self._client: RegistryClient | None = None

    def get_nowait(self, key: K) -> V:
        """Return what is known.

        Raises:
            LoadRequiredError: Nothing is known yet.
            ValueError: The registry refused it; the message says why.
        """
        found = self._known.get(key)
        if isinstance(found, _Refusal):
            if monotonic() < found.until:
                raise ValueError(found.reason)
            found = None
        if found is None:
            raise LoadRequiredError(partial(self._load, key))
        return found

    def _load(self, key: K) -> None:
        """Ask the registry.

        Raises:
            SchemaRegistryError: It does not answer, or refuses.
            ModuleNotFoundError: A package of the extra ``http`` is not installed.
        """
        with self._lock:
            found = self._known.get(key)
            if found is not None and not (isinstance(found, _Refusal) and found.until <= monotonic()):
                return  # another thread has asked meanwhile
            if len(self._known) >= _KNOWN_MAX:
                self._known.popitem(last=False)
            self._known[key] = self._asked(key)

    def _asked(self, key: K) -> V | _Refusal:
        try:
            from kalda.formats.registry import RegistryClient, RegistryError, UnknownSchemaError

            if self._client is None:
                self._client = RegistryClient(self._options.settings())
            try:
                return self._ask(self._client, key)
            finally:
                # A serializer asks once for each schema, and nobody closes it.
                self._client.close()
        except ModuleNotFoundError as error:
            raise missing_package("a serializer with a schema registry", "http", error) from error
        except UnknownSchemaError as error:
            reason = str(error)
        except RegistryError as error:
            raise SchemaRegistryError(str(error)) from error
        except Exception as error:  # a boundary: parsers of schemas raise what their authors thought of
            reason = f"the schema of {key!r} cannot be used: {error}"
        return _Refusal(reason, monotonic() + _REFUSED_SECONDS)


def waiting(call: Callable[[], V]) -> V:
    """Return what a call returns, after it has loaded what it lacks.

    Raises:
        SchemaRegistryError: The registry does not answer, or refuses.
    """
    while True:
        try:
            return call()
        except LoadRequiredError as required:
            required.load()
