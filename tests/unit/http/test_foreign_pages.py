"""What a page of another site may have a browser send."""

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from kalda.http.errors import HttpError
from kalda.http.foreign_pages import ForeignPages
from kalda.http.settings import HttpSettings

CLIENT = {"bootstrap.servers": "127.0.0.1:9092"}
LOGIN = {**CLIENT, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
LOGIN |= {"sasl.username": "u", "sasl.password": "p"}


def status(
    method: str = "POST",
    host: str = "127.0.0.1:8080",
    *,
    headers: Mapping[str, str] = MappingProxyType({}),
    client: Mapping[str, str] = CLIENT,
    kind: str = "http",
    settings: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Return the status of the refusal, 200 without one."""
    scope = {
        "type": kind,
        "method": method,
        "path": "/v1/topics/orders",
        "headers": [
            (name.encode(), value.encode("latin-1")) for name, value in {"host": host, **headers}.items()
        ],
    }
    guard = ForeignPages(HttpSettings.read(settings, client))
    try:
        guard.check(scope)
    except HttpError as error:
        return error.status
    return 200


@pytest.mark.parametrize("client", [CLIENT, LOGIN], ids=["without logins", "with logins"])
def test_a_program_is_no_page(client: dict[str, str]) -> None:
    assert 200 == status(client=client)


@pytest.mark.parametrize("client", [CLIENT, LOGIN], ids=["without logins", "with logins"])
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "null"},
        {"origin": "http://[::1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": "http://127.0.0.1:8080"},
    ],
    ids=str,
)
def test_a_page_of_another_site_changes_nothing(client: dict[str, str], headers: dict[str, str]) -> None:
    assert 403 == status(client=client, headers=headers)
    assert 403 == status(client=client, kind="websocket", method="GET", headers=headers)
    assert 200 == status("GET", client=client, headers=headers), "a browser keeps it from the page"


def test_a_page_of_this_server_may_change_things() -> None:
    assert 200 == status(headers={"origin": "http://127.0.0.1:8080", "sec-fetch-site": "same-origin"})
    assert 200 == status(headers={"origin": "null", "sec-fetch-site": "same-origin"})


@pytest.mark.parametrize("allowed", ["https://app.example.com", "*"])
def test_a_page_that_the_settings_allow_may_change_things(allowed: str) -> None:
    settings = {"http.cors.origins": allowed}
    headers = {"origin": "https://app.example.com", "sec-fetch-site": "cross-site"}
    assert 200 == status(settings=settings, headers=headers)


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "host", ["evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example", "[::1"]
)
def test_a_server_of_this_machine_has_only_its_own_names(method: str, host: str) -> None:
    """A site's name may resolve to 127.0.0.1; its pages would then be pages of this server."""
    assert 421 == status(method, host)
    assert 421 == status(method, host, kind="websocket")
    assert 200 == status(method, host, client=LOGIN), "the person has logged in there under another name"
    assert 200 == status(method, host, settings={"listeners": "http://0.0.0.0:8080"})


@pytest.mark.parametrize(
    "host", ["localhost:8080", "127.0.0.2", "[::1]:8080", "kalda.localhost", "", "box:8080"]
)
def test_names_of_this_machine(host: str) -> None:
    assert 200 == status("GET", host, settings={"host.name": "box"})
