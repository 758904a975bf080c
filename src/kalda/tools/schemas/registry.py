"""Sends the requests of `kalda schemas` to a schema registry, by the names of its REST API."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import click

from kalda.command.errors import ToolError, ToolUsageError
from kalda.command.values import parse_settings, read_settings
from kalda.net.schema_registry import (
    RegistryConnection,
    RegistryRefusalError,
    RegistryUnavailableError,
    basic_authorization,
)

REGISTRY_VARIABLE: Final = "KALDA_SCHEMA_REGISTRY"
REGISTRY_DEFAULT: Final = "http://127.0.0.1:8080"
"""Where `kalda http` listens by default."""
_TIMEOUT_SECONDS: Final = 30.0
_TLS_DEFAULTS: Final = {
    "ssl.endpoint.identification.algorithm": "https",
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
}


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a subject, as a registry returns it and takes it for an import."""

    subject: str
    version: int
    id: int
    document: Mapping[str, Any]
    """With ``schema`` and what else the registry says: ``schemaType``, ``references``, ``metadata``, …"""

    @property
    def type(self) -> str:
        """``AVRO``, ``JSON`` or ``PROTOBUF``; a registry leaves the first one out."""
        return str(self.document.get("schemaType", "AVRO"))

    @property
    def references(self) -> Sequence[Mapping[str, Any]]:
        """Name, subject and version of each schema that this one uses."""
        found: Sequence[Mapping[str, Any]] = self.document.get("references") or []
        return found

    def content(self) -> dict[str, Any]:
        """Return what a registration of this schema has."""
        names = ("schema", "schemaType", "references", "metadata", "ruleSet")
        return {name: self.document[name] for name in names if self.document.get(name) is not None}


class Registry:
    """A registry; every refusal is a `ToolError`."""

    def __init__(self, connection: RegistryConnection) -> None:
        self._connection: Final = connection

    def ask(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        """Return the document of an answer.

        Raises:
            ToolError: The registry refuses, or does not answer.
        """
        try:
            return self._connection.request(method, path, body)
        except RegistryRefusalError as error:
            raise ToolError(f"the schema registry refuses {method} {path}: {error} ({error.code})") from None
        except RegistryUnavailableError as error:
            raise ToolError(f"the schema registry does not answer; check --registry: {error}") from None

    def find(self, path: str) -> Any:
        """Return the document at a path; None if there is none. Raises as `ask` does."""
        try:
            return self._connection.request("GET", path)
        except RegistryRefusalError as error:
            if error.is_missing:
                return None
            raise ToolError(f"the schema registry refuses GET {path}: {error} ({error.code})") from None
        except RegistryUnavailableError as error:
            raise ToolError(f"the schema registry does not answer; check --registry: {error}") from None

    def subjects(self, prefix: str = "", *, deleted: bool = False) -> list[str]:
        """Return the names of subjects, sorted."""
        # Registries read the prefix :*: as all contexts; the default is the context without a name.
        query = f"subjectPrefix={quote(prefix, safe='')}&deleted={str(deleted).lower()}"
        return sorted(str(each) for each in self.ask("GET", f"/subjects?{query}"))

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """Return the numbers of a subject's versions."""
        found = self.ask("GET", f"{subject_path(subject)}/versions?deleted={str(deleted).lower()}")
        return [int(each) for each in found]

    def version(self, subject: str, version: int | str, *, deleted: bool = False) -> Version:
        """Return one version; ``latest`` is the newest."""
        found = self.ask("GET", f"{subject_path(subject)}/versions/{version}?deleted={str(deleted).lower()}")
        return Version(subject, int(found["version"]), int(found["id"]), found)

    def all_versions(self, subject: str, *, deleted: bool = False) -> Iterator[Version]:
        """Yield all versions of a subject, the oldest first."""
        for number in self.versions(subject, deleted=deleted):
            yield self.version(subject, number, deleted=deleted)

    def level(self, subject: str | None = None) -> str | None:
        """Return the compatibility level of a subject, or of all; None where it has none of its own."""
        found = self.find("/config" if subject is None else f"/config/{quote(subject, safe='')}")
        return None if found is None else str(found.get("compatibilityLevel"))


def subject_path(subject: str) -> str:
    """Return the path of a subject."""
    return f"/subjects/{quote(subject, safe='')}"


def registry_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a connection to a registry."""
    for option in (
        click.option(
            "--command-property",
            "registry_property",
            multiple=True,
            metavar="KEY=VALUE",
            help="A setting of the registry's client; wins over the file; repeatable.",
        ),
        click.option(
            "--command-config",
            "registry_config",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="A properties file: schema.registry.url, basic.auth.user.info, bearer.auth.token, "
            "schema.registry.ssl.truststore.location and others.",
        ),
        click.option(
            "--registry",
            metavar="URL,...",
            help=f"Addresses of the registry. Default: ${REGISTRY_VARIABLE}, else {REGISTRY_DEFAULT}.",
        ),
    ):
        function = option(function)
    return function


def open_registry(
    registry: str | None,
    command_config: Path | None,
    command_property: tuple[str, ...],
    environment: Mapping[str, str],
) -> Registry:
    """Return the registry that the options name.

    Raises:
        ToolUsageError: The file cannot be read, or an address or the credentials are wrong.
    """
    settings = read_settings("--command-config", command_config)
    settings |= parse_settings("--command-property", command_property)
    text = (
        registry
        or settings.get("schema.registry.url")
        or environment.get(REGISTRY_VARIABLE)
        or REGISTRY_DEFAULT
    )
    return registry_of(text, settings)


def registry_of(text: str, settings: Mapping[str, str]) -> Registry:
    """Return the registry at addresses with commas between them, with the credentials of settings.

    Raises:
        ToolUsageError: An address or the credentials are wrong.
    """
    urls = [each.strip() for each in text.split(",") if each.strip()]
    for url in urls:
        if not url.startswith(("http://", "https://")):
            raise ToolUsageError(f"{url} is no address of a registry; expected one as {REGISTRY_DEFAULT}")
    return Registry(
        RegistryConnection(urls, _authorization(settings), _TIMEOUT_SECONDS, _tls(settings, urls))
    )


def read_schema(path: Path) -> str:
    """Return the text of a schema's file.

    Raises:
        ToolUsageError: It cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ToolUsageError(f"{path} cannot be read: {error}") from None


def shown_schema(text: str) -> str:
    """Return a schema for people: JSON over several lines, other text as it is."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text.rstrip("\n")


def _setting(settings: Mapping[str, str], name: str) -> str | None:
    """Return a setting by either of Confluent's names, with or without the prefix."""
    return settings.get(f"schema.registry.{name}", settings.get(name))


def _authorization(settings: Mapping[str, str]) -> str | None:
    user_info = _setting(settings, "basic.auth.user.info")
    token = _setting(settings, "bearer.auth.token")
    if user_info is not None and token is not None:
        raise ToolUsageError("basic.auth.user.info and bearer.auth.token are both set; set one")
    if user_info is not None:
        if ":" not in user_info:
            raise ToolUsageError("basic.auth.user.info has no colon; expected NAME:PASSWORD")
        return basic_authorization(user_info)
    return None if token is None else f"Bearer {token}"


def _tls(settings: Mapping[str, str], urls: Sequence[str]) -> Any:
    if not any(url.startswith("https://") for url in urls):
        return None
    from kalda.security.tls.contexts import client_context
    from kalda.security.tls.settings import TlsSettings, TlsSettingsError

    try:
        return client_context(
            TlsSettings.read(lambda name: settings.get(f"schema.registry.{name}", _TLS_DEFAULTS.get(name)))
        )
    except TlsSettingsError as error:
        raise ToolUsageError(f"schema.registry.{error.setting}: {error}") from None
