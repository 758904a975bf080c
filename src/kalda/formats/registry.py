"""A client of schema registries with Confluent's REST API: schemas by id or subject, registration.

Schemas never change under an id, so they are cached for the life of the process. An id that the registry does
not know is remembered for a minute, because corrupt values name random ids. A registry that cannot be reached
is an error of the job, never of a value; otherwise an outage would fill the dead-letter queue with good
records.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast
from urllib.parse import quote

from kalda.common.backoff import ExponentialBackoff
from kalda.formats.spec import FormatError, FormatSpec, cut
from kalda.runtime.system.clock import monotonic, sleep
from kalda.runtime.system.random import SYSTEM_RANDOM
from kalda.schemas.errors import InvalidSchemaError
from kalda.schemas.references import texts_of_references

if TYPE_CHECKING:
    import requests

OPTIONS: Final = (
    "registry.url",
    "registry.user",
    "registry.password",
    "registry.token",
    "registry.timeout_s",
    "registry.tries",
)
SUBJECT_OPTIONS: Final = ("subject", "schema.id")
"""How a format says which registered schema rows have: the latest one of a subject, or the one of an id."""
_UNKNOWN_SECONDS: Final = 60.0
_UNKNOWN_MAX: Final = 100_000
"""Unknown ids that are remembered; a process that meets more forgets them all."""
_IDS_MAX: Final = 10_000
"""Schemas that are remembered; a process that meets more asks again."""
_SCHEMA_BYTES_MAX: Final = 4 << 20
"""Unpacked bytes of a response; schemas are a few kilobytes, and a small body may unpack to gigabytes."""
_BACKOFF: Final = ExponentialBackoff(100, 5_000, SYSTEM_RANDOM.uniform)
_TYPE: Final = "application/vnd.schemaregistry.v1+json"


class RegistryError(Exception):
    """The schema registry does not answer, or refuses; the message names its address and what to do."""


class UnknownSchemaError(RegistryError):
    """The registry has no such schema or subject."""


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A schema that another one uses, by a name."""

    name: str
    subject: str
    version: int

    def document(self) -> dict[str, str | int]:
        """Return the JSON of the registry's API."""
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of the registry.

    Args:
        id: Its id in the framing of values.
        kind: ``AVRO``, ``JSON`` or ``PROTOBUF``.
        text: The schema.
        references: Name and text of each schema that it uses, each after those that it uses itself.
    """

    id: int
    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class OptionNames:
    """What the options are called where they come from, for messages."""

    url: str = "registry.url"
    credentials: str = "registry.user and registry.password, or registry.token"


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """How a registry is reached; with several addresses, the next one is tried when one does not answer."""

    urls: tuple[str, ...]
    user: str | None = None
    password: str | None = None
    token: str | None = None
    timeout_s: int = 10
    tries: int = 5
    ca_location: str | None = None
    """The file of certificates that the registry's one must be signed by; those of the system if None."""
    names: OptionNames = field(default_factory=OptionNames)

    def __repr__(self) -> str:
        """Return the addresses only: the rest is secret."""
        return f"RegistrySettings(urls={self.urls})"


def registry_settings(spec: FormatSpec) -> RegistrySettings:
    """Return the settings of a format's options.

    Raises:
        FormatError: The address is missing or malformed, or there are two kinds of credentials.
    """
    text = spec.options.get("registry.url", "")
    urls = tuple(part.strip().rstrip("/") for part in text.split(",") if part.strip())
    if not urls or not all(url.startswith(("http://", "https://")) for url in urls):
        raise FormatError(
            f"format {spec.name} needs the option registry.url, e.g. http://127.0.0.1:8081; found {text!r}"
        )
    user, password = spec.options.get("registry.user"), spec.options.get("registry.password")
    token = spec.options.get("registry.token")
    if (user is None) != (password is None):
        raise FormatError("registry.user and registry.password belong together; give both")
    if user is not None and token is not None:
        raise FormatError("registry.user and registry.token are both given; give one kind of credentials")
    return RegistrySettings(
        urls,
        user,
        password,
        token,
        spec.integer("registry.timeout_s", 10, 1, 300),
        spec.integer("registry.tries", 5, 1, 20),
    )


def subject_schema(client: "RegistryClient", spec: FormatSpec, kind: str) -> RegisteredSchema | None:
    """Return the schema that the options ``schema.id`` and ``subject`` name; None without them.

    Raises:
        FormatError: It is of another kind, or an option is wrong.
        RegistryError: The registry does not answer, or has no such schema.
    """
    subject = spec.options.get("subject")
    if "schema.id" in spec.options:
        found = client.schema(spec.integer("schema.id", 0, 0, 2**31 - 1))
        what = f"the schema {found.id}"
    elif subject is not None:
        found, what = client.latest(subject), f"the subject {subject}"
    else:
        return None
    if found.kind != kind:
        raise FormatError(f"{what} is {found.kind}, not {kind}; check value.format")
    return found


class RegistryClient:
    """Reads and registers schemas; picklable, and safe after a fork."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings: Final = settings
        self._session: requests.Session | None = None
        self._pid = 0
        self._by_id: dict[int, RegisteredSchema] = {}
        self._ids: dict[tuple[str, str, str], int] = {}
        self._unknown: dict[int, float] = {}

    def __reduce__(self) -> tuple[type["RegistryClient"], tuple[RegistrySettings]]:
        """Return the settings; a copy opens a connection of its own."""
        return RegistryClient, (self._settings,)

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        if self._session is not None and self._pid == os.getpid():
            self._session.close()
        self._session = None

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Return the schema of an id.

        Raises:
            UnknownSchemaError: The registry has none.
            RegistryError: It does not answer.
        """
        found = self._by_id.get(schema_id)
        if found is not None:
            return found
        now = monotonic()
        if self._unknown.get(schema_id, now) > now:
            raise UnknownSchemaError(f"the registry {self._settings.urls[0]} has no schema {schema_id}")
        try:
            document = self._request("GET", f"/schemas/ids/{schema_id}")
        except UnknownSchemaError as error:
            if len(self._unknown) >= _UNKNOWN_MAX:
                self._unknown.clear()
            self._unknown[schema_id] = now + _UNKNOWN_SECONDS
            raise UnknownSchemaError(
                f"the registry {self._settings.urls[0]} has no schema {schema_id}"
            ) from error
        found = self._registered(schema_id, document)
        if len(self._by_id) >= _IDS_MAX:
            self._by_id.clear()
        self._by_id[schema_id] = found
        return found

    def latest(self, subject: str) -> RegisteredSchema:
        """Return the latest version of a subject.

        Raises:
            UnknownSchemaError: The registry has no such subject.
            RegistryError: It does not answer.
        """
        try:
            document = self._request("GET", f"/subjects/{quote(subject, safe='')}/versions/latest")
        except UnknownSchemaError as error:
            raise UnknownSchemaError(
                f"the registry {self._settings.urls[0]} has no subject {subject!r}; check the option subject"
            ) from error
        return self._registered(self._number(document, "id"), document)

    def register(
        self,
        subject: str,
        kind: str,
        text: str,
        references: Sequence[SchemaReference] = (),
        *,
        normalize: bool = False,
    ) -> int:
        """Return the id of a schema, registered under a subject if it is not there yet.

        Raises:
            RegistryError: The schema is not compatible with the subject's, or the registry does not answer.
        """
        key = subject, kind, text
        if key not in self._ids:
            path = f"/subjects/{quote(subject, safe='')}/versions"
            document = self._post_schema(path, kind, text, references, normalize=normalize)
            if len(self._ids) >= _IDS_MAX:
                self._ids.clear()
            self._ids[key] = self._number(document, "id")
        return self._ids[key]

    def find(
        self,
        subject: str,
        kind: str,
        text: str,
        references: Sequence[SchemaReference] = (),
        *,
        normalize: bool = False,
    ) -> tuple[int, int]:
        """Return the id and the version of a schema that is registered under a subject.

        Raises:
            UnknownSchemaError: It is not registered.
            RegistryError: The registry does not answer.
        """
        path = f"/subjects/{quote(subject, safe='')}"
        document = self._post_schema(path, kind, text, references, normalize=normalize)
        return self._number(document, "id"), self._number(document, "version")

    def texts_of(self, references: Sequence[SchemaReference]) -> tuple[tuple[str, str], ...]:
        """Return the name and text of what references refer to, directly or not, each after what it uses.

        Raises:
            RegistryError: The registry has none, or does not answer.
            FormatError: There are too many, or one refers to itself.
        """
        return self._texts([each.document() for each in references])

    def _post_schema(
        self, path: str, kind: str, text: str, references: Sequence[SchemaReference], *, normalize: bool
    ) -> Mapping[str, object]:
        body: dict[str, object] = {"schema": text}
        if kind != "AVRO":
            body["schemaType"] = kind
        if references:
            body["references"] = [each.document() for each in references]
        return self._request("POST", f"{path}?normalize=true" if normalize else path, body)

    def _number(self, document: Mapping[str, object], name: str) -> int:
        number = document.get(name)
        if not isinstance(number, int):
            raise self._odd(document)
        return number

    def _registered(self, schema_id: int, document: Mapping[str, object]) -> RegisteredSchema:
        text, kind = document.get("schema"), document.get("schemaType", "AVRO")
        if not isinstance(text, str) or not isinstance(kind, str):
            raise self._odd(document)
        return RegisteredSchema(schema_id, kind, text, self._texts(document.get("references")))

    def _texts(self, references: object) -> tuple[tuple[str, str], ...]:
        """Return the name and text of what references refer to; see `texts_of`."""

        def get(subject: str, version: int) -> Mapping[str, object]:
            return self._request("GET", f"/subjects/{quote(subject, safe='')}/versions/{version}")

        try:
            return tuple(texts_of_references(references, get).items())
        except InvalidSchemaError as error:
            raise FormatError(f"a schema cannot be used: {error}") from None

    def _request(
        self, method: str, path: str, body: Mapping[str, object] | None = None
    ) -> Mapping[str, object]:
        """Send a request, again after a fault that may pass; return the JSON object of the response."""
        import requests

        settings = self._settings
        problem = ""
        for attempt in range(settings.tries):
            url = settings.urls[attempt % len(settings.urls)] + path
            try:
                response = self._open().request(
                    method, url, json=body, timeout=settings.timeout_s, stream=True
                )
                content = _content(response, url)
            except requests.RequestException as error:
                problem = f"{url}: {error}"
            else:
                if response.status_code < 500 and response.status_code != 429:
                    return self._answer(response, content, url)
                problem = f"{url}: HTTP {response.status_code} {content[:200].decode(errors='replace')}"
            if attempt + 1 < settings.tries:
                sleep(_BACKOFF.seconds(attempt + 1))
        raise RegistryError(
            f"the schema registry does not answer after {settings.tries} tries; "
            f"check {settings.names.url} and that it runs: {problem}"
        )

    def _answer(self, response: "requests.Response", content: bytes, url: str) -> Mapping[str, object]:
        text = content[:200].decode(errors="replace")
        try:
            document = json.loads(content)
        except (ValueError, RecursionError):
            document = None
        if response.ok and isinstance(document, dict):
            return cast(Mapping[str, object], document)
        message = str(document.get("message")) if isinstance(document, dict) else text
        if response.status_code == 404 and _is_of_registry(document):
            raise UnknownSchemaError(f"{url}: {message}")
        if response.status_code in (401, 403):
            raise RegistryError(
                f"{url}: HTTP {response.status_code} {message}; set {self._settings.names.credentials}"
            )
        if response.status_code == 409:
            raise RegistryError(f"{url}: the schema is not compatible with earlier ones: {message}")
        raise RegistryError(f"{url}: HTTP {response.status_code} {message}")

    def _open(self) -> "requests.Session":
        import requests

        if self._session is None or self._pid != os.getpid():
            self._session, self._pid = requests.Session(), os.getpid()
            self._session.headers["Accept"] = f"{_TYPE}, application/json"
            settings = self._settings
            self._session.verify = settings.ca_location or True
            if settings.user is not None and settings.password is not None:
                self._session.auth = settings.user, settings.password
            elif settings.token is not None:
                self._session.headers["Authorization"] = f"Bearer {settings.token}"
        return self._session

    def _odd(self, document: object) -> RegistryError:
        return RegistryError(
            f"{self._settings.urls[0]} answers {str(document)[:200]}; "
            "is it a schema registry with Confluent's API?"
        )


_ParsedT = TypeVar("_ParsedT")


class ParsedSchemas(Generic[_ParsedT]):
    """The schemas of a registry as a format parses them; one that it cannot parse is not tried again."""

    def __init__(
        self, client: RegistryClient, kind: str, parse: Callable[[RegisteredSchema], _ParsedT]
    ) -> None:
        self._client: Final = client
        self._kind: Final = kind
        self._parse: Final = parse
        self._parsed: dict[int, _ParsedT | str] = {}

    def __reduce__(self) -> tuple[object, ...]:
        """Return what a copy parses by; what is parsed may not be picklable."""
        return ParsedSchemas, (self._client, self._kind, self._parse)

    def get(self, schema_id: int) -> _ParsedT:
        """Return the schema of an id.

        Raises:
            UnknownSchemaError: The registry has none, or one of another kind.
            FormatError: It cannot be parsed.
            RegistryError: The registry does not answer.
        """
        found = self._parsed.get(schema_id)
        if found is None:
            found = self._parsed[schema_id] = self._read(schema_id)
        if isinstance(found, str):
            raise FormatError(found)
        return found

    def _read(self, schema_id: int) -> _ParsedT | str:
        try:
            registered = self._client.schema(schema_id)
            if registered.kind != self._kind:
                raise UnknownSchemaError(f"schema {schema_id} is {registered.kind}, not {self._kind}")
            return self._parse(registered)
        except RegistryError:
            raise
        except Exception as error:  # a boundary: parsers of schemas raise what their authors thought of
            detail = "" if isinstance(error, FormatError) else f"{type(error).__name__}: "
            return cut(f"schema {schema_id} cannot be decoded: {detail}{error}")


def _is_of_registry(document: object) -> bool:
    """Return whether a registry says that it has no such thing, and not a proxy, or a path without an API."""
    if not isinstance(document, dict) or "error_code" not in document:
        return False
    return not str(document.get("message")).startswith("HTTP 404")


def _content(response: "requests.Response", url: str) -> bytes:
    """Return the body of a response, unpacked.

    Raises:
        FormatError: It is larger than a schema may be.
    """
    content = bytearray()
    with response:
        for chunk in response.iter_content(1 << 16):
            content += chunk
            if len(content) > _SCHEMA_BYTES_MAX:
                raise FormatError(f"{url} has more than {_SCHEMA_BYTES_MAX} bytes")
    return bytes(content)
