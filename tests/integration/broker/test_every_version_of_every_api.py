"""Each version of each API that a broker announces has an answer that its client can read.

A handler that sets a field which the request's version does not have fails in the encoder, after the work is
done. So every version is asked for what succeeds and for what fails, as a user who may do it and as one who
may not, and with a request that has nothing but defaults.
"""

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from kalda.broker.process.secure import ADMINISTRATOR
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.testing import Cluster
from kalda.testing.security import Security
from tests.integration.broker.api_cases import CASES, LAST, SASL, Site, ask_over, codes_of

NOBODY = "nobody"
SETTINGS = {"auto.create.topics.enable": "false", "metrics.port": "0"}


def versions(site: Site) -> list[tuple[ApiKey, int]]:
    keys = sorted(site.announced, key=lambda key: (key in LAST, key))
    return [
        (key, version)
        for key in keys
        for version in range(site.announced[key][0], site.announced[key][1] + 1)
        if key not in SASL
    ]


@pytest.mark.parametrize("is_secure", [False, True], ids=["open", "secured"])
@pytest.mark.parametrize("count", [1, 3])
def test_every_announced_version_answers(count: int, *, is_secure: bool) -> None:
    """An API without an entry in `CASES` fails too: it would not be tested at all."""
    security = Security(users=[NOBODY], protocol="SASL_PLAINTEXT", mechanism="PLAIN") if is_secure else None
    settings = SETTINGS | ({"delegation.token.secret.key": "secret"} if is_secure else {})
    with Cluster(count, settings=settings, security=security) as cluster, closing(Site(cluster)) as site:
        assert set() == site.announced.keys() - CASES.keys() - set(SASL)
        problems = [
            f"{key.title} v{version}, {kind}: {problem}"
            for key, version in versions(site)
            for kind, answer in answers(site, key, version)
            if (problem := problem_of(site, key, kind, answer)) is not None
        ]
        assert [] == problems
        check_logins(site)


def answers(site: Site, key: ApiKey, version: int) -> Iterator[tuple[str, Any]]:
    """Yield the answers of one version, or the exception that came instead."""
    case = CASES[key]
    bad = case.bad(site, version)
    if bad is not None:
        yield "failing", attempt(lambda: site.settle(key, version, bad))
    good = case.good(site, version)
    yield "succeeding", attempt(lambda: site.settle(key, version, good))
    if site.is_secure:
        yield "refused", attempt(lambda: site.ask(key, version, good, user=NOBODY))
    for other in case.others:
        fields = other(site, version)
        for broker in site.brokers:
            yield "other", attempt(partial(site.ask, key, version, fields, broker=broker))
    if key not in LAST:
        yield "default", attempt(lambda: site.ask(key, version, {"acks": 1} if key == ApiKey.PRODUCE else {}))


def attempt(ask: Any) -> Any:
    try:
        return ask()
    except Exception as error:
        return error


def problem_of(site: Site, key: ApiKey, kind: str, answer: Any) -> str | None:
    if isinstance(answer, Exception):
        return repr(answer)
    codes = {ErrorCode.of(code).name for code in codes_of(answer)}
    if ErrorCode.UNKNOWN_SERVER_ERROR.name in codes:
        return f"a handler failed: {answer}"
    case = CASES[key]
    is_denied = case.needs_security and not site.is_secure
    if kind == "succeeding" and not is_denied:
        codes -= {ErrorCode.of(code).name for code in case.tolerated}
        return f"{codes} in {answer}" if codes else None
    if kind == "failing" or (kind == "succeeding" and is_denied):
        return None if codes else f"no error in {answer}"
    return None


def check_logins(site: Site) -> None:
    """Handshakes and logins change their connection, so each has one of its own."""
    handshakes = range(site.announced[ApiKey.SASL_HANDSHAKE][1] + 1)
    for version in handshakes:
        with site.connect(0, user=None) as client:
            answer = ask_over(client, ApiKey.SASL_HANDSHAKE, version, {"mechanism": "none"})
            expected = (
                ErrorCode.UNSUPPORTED_SASL_MECHANISM if site.is_secure else ErrorCode.ILLEGAL_SASL_STATE
            )
            assert expected == answer.error_code
    for version in range(site.announced[ApiKey.SASL_AUTHENTICATE][1] + 1):
        for password, expected in (("wrong", ErrorCode.SASL_AUTHENTICATION_FAILED), (None, ErrorCode.NONE)):
            with site.connect(0, user=None) as client:
                secured = site.cluster.secured
                if secured is not None:
                    ask_over(client, ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
                    password = password or secured.passwords[ADMINISTRATOR]
                token = f"\0{ADMINISTRATOR}\0{password}".encode()
                answer = ask_over(client, ApiKey.SASL_AUTHENTICATE, version, {"auth_bytes": token})
                assert (expected if site.is_secure else ErrorCode.ILLEGAL_SASL_STATE) == answer.error_code
