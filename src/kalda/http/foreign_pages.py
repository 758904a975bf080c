"""Refuses requests that a browser sends on behalf of a page of another site.

A browser sends a form, or a script's simple request, to any server that it reaches, such as one on the same
machine, with the cookies and from the address of the person in front of it; and a site can have its own name
resolve to 127.0.0.1 (DNS rebinding), so that its pages count as pages of that server and read what it serves.
Programs other than browsers send neither ``Origin`` nor ``Sec-Fetch-Site``.
"""

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from kalda.http.errors import HttpError
from kalda.http.settings import HttpSettings

_SAFE: Final = frozenset(("GET", "HEAD", "OPTIONS"))
"""Methods that change nothing. Browsers keep what they return from pages of other origins."""

_OWN_SITES: Final = ("same-origin", "none")
_HEADERS: Final = frozenset((b"origin", b"sec-fetch-site"))


class ForeignPages:
    """Recognises requests from pages of other sites by their headers."""

    def __init__(self, settings: HttpSettings) -> None:
        self._allowed: Final = frozenset(settings.http_cors_origins)
        self._host_name: Final = settings.host_name
        self._has_own_names: Final = not settings.needs_login and _is_loopback(settings.listener.host)

    def check(self, scope: Scope) -> None:
        """Refuse a request of a page of another site.

        Raises:
            HttpError: the page is of an origin that `http.cors.origins` does not have (403), or the server is
                asked for under a name that is not its own (421).
        """
        headers = Headers(scope=scope) if self._has_own_names else None
        if headers is not None:
            self._check_name(headers.get("host", ""))
        if scope["type"] == "http" and scope["method"] in _SAFE:
            return
        if headers is None:
            if _HEADERS.isdisjoint(name for name, _ in scope["headers"]):
                return
            headers = Headers(scope=scope)
        self._check_origin(headers)

    def _check_name(self, host: str) -> None:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            name = host
        if name and not _is_loopback(name) and name != self._host_name:
            raise HttpError(
                421,
                f"this server does not have the name {name[:100]!r}; use 127.0.0.1 or localhost, or set "
                "`host.name`",
            )

    def _check_origin(self, headers: Headers) -> None:
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin in self._allowed or (origin is not None and "*" in self._allowed):
            return
        if site is not None and site not in _OWN_SITES:
            raise HttpError(
                403, f"the request comes from a page of another site (Sec-Fetch-Site: {site[:20]})"
            )
        # Pages that send no referrer send the origin null with their own forms.
        if origin is None or (origin == "null" and site is not None):
            return
        try:
            is_own = urlsplit(origin).netloc == headers.get("host", "")
        except ValueError:
            is_own = False
        if not is_own:
            raise HttpError(
                403,
                f"the request comes from a page of another site (Origin: {origin[:100]}), which "
                "`http.cors.origins` does not allow",
            )


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
