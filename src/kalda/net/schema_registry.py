"""Asks a schema registry with Confluent's REST API, request by request; blocks.

A broker and the command line ask rarely, so each request has a connection of its own.
"""

import base64
import json
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from kalda.net.http_document import TIMEOUT_SECONDS, DocumentError, read_document

_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_UNAUTHORIZED: Final = (401, 403)
_SERVER_ERROR_FROM: Final = 500
_TOO_MANY: Final = 429


class RegistryUnavailableError(Exception):
    """No registry answers, or what answers is none; the message has the address and the reason."""


class RegistryRefusalError(Exception):
    """A registry refused a request.

    Args:
        status: HTTP's status.
        code: The registry's own code, such as 40401 for a subject that does not exist.
        message: The registry's words.
    """

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status: Final = status
        self.code: Final = code

    @property
    def is_missing(self) -> bool:
        """Whether the registry has no such schema, subject, version or setting."""
        return self.status == 404


class RegistryConnection:
    """Registries that have the same content; the next one is asked where one does not answer.

    Args:
        urls: Addresses with http or https.
        authorization: The header of each request, or None.
        timeout_seconds: How long one may be silent.
        tls: For https; None for the system's authorities.
    """

    def __init__(
        self,
        urls: Sequence[str],
        authorization: str | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.urls: Final = tuple(url.rstrip("/") for url in urls)
        self._headers: Final = {"Accept": f"{_TYPE}, application/json"}
        if authorization is not None:
            self._headers["Authorization"] = authorization
        self._timeout_seconds: Final = timeout_seconds
        self._tls: Final = tls

    def request(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        """Send a request; return the JSON document of the answer.

        Raises:
            RegistryRefusalError: The registry refuses it.
            RegistryUnavailableError: No registry answers.
        """
        problem = ""
        for url in self.urls:
            try:
                return self._send(method, url, path, body)
            except RegistryUnavailableError as error:
                problem = str(error)
        raise RegistryUnavailableError(problem)

    def _send(self, method: str, url: str, path: str, body: Mapping[str, object] | None) -> Any:
        headers = self._headers if body is None else {**self._headers, "Content-Type": _TYPE}
        try:
            content = read_document(
                url + path,
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                timeout_seconds=self._timeout_seconds,
                tls=self._tls,
                method=method,
            )
        except DocumentError as error:
            if error.status is None or error.status >= _SERVER_ERROR_FROM or error.status == _TOO_MANY:
                raise RegistryUnavailableError(f"{error}{_words(error.body)}") from None
            refusal = _refusal(error.status, error.body)
            if refusal is None:
                raise RegistryUnavailableError(
                    f"{error}; is it a schema registry with Confluent's API?"
                ) from None
            raise refusal from None
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise RegistryUnavailableError(
                f"{shown_address(url)} answered with something else than JSON; is it a schema registry?"
            ) from None


def basic_authorization(user_info: str) -> str:
    """Return the header of a name and a password, ``NAME:PASSWORD``."""
    return f"Basic {base64.b64encode(user_info.encode()).decode()}"


def shown_address(url: str) -> str:
    """Return an address without a name and a password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _document(body: bytes) -> Mapping[str, object]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _words(body: bytes) -> str:
    message = _document(body).get("message")
    return f": {str(message)[:300]}" if message else ""


def _refusal(status: int, body: bytes) -> RegistryRefusalError | None:
    """Return the refusal of a registry; None if a proxy or another server answered."""
    document = _document(body)
    code, message = document.get("error_code"), str(document.get("message"))[:2000]
    if status in _UNAUTHORIZED:
        return RegistryRefusalError(status, status, "the registry refuses the credentials")
    # A path that is none of the registry has the status itself as its code.
    if not isinstance(code, int) or (status == 404 and message.startswith("HTTP 404")):
        return None
    return RegistryRefusalError(status, code, message)
