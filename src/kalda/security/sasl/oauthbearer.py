"""Implements OAUTHBEARER (RFC 7628, KIP-255): the client shows a token that an identity provider has issued.

client: n,,^Aauth=Bearer <token>^A^A
broker: nothing if it accepts the token, else {"status":"invalid_token"}
client: ^A, which the broker answers with the refusal
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Final

from kalda.security.principal import USER, KafkaPrincipal
from kalda.security.sasl.bearer_token import BearerToken, InvalidTokenError, VerifyToken
from kalda.security.sasl.mechanism import OAUTHBEARER, SaslError

_SEPARATOR: Final = "\x01"
_KEY: Final = "[A-Za-z]+"
_VALUE: Final = r"[\x21-\x7E \t\r\n]+"
_INITIAL: Final = re.compile(
    rf"n,(?:a=(?P<authorization>(?:[^\0=,\x80-\U0010ffff]|=2C|=3D)+))?,\x01(?P<pairs>(?:{_KEY}={_VALUE}\x01)*)\x01"
)
_AUTH: Final = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
_EXTENSION_NAME: Final = re.compile(_KEY)
_EXTENSION_VALUE: Final = re.compile(_VALUE)
_AUTH_KEY: Final = "auth"

GetToken = Callable[[], BearerToken]
"""Returns a token that is valid now; may block. Raises `SaslError`."""


class OAuthBearerServer:
    """The broker's side."""

    def __init__(self, verify: VerifyToken) -> None:
        self._verify: Final = verify
        self._refusal: SaslError | None = None
        """What the client gets after its acknowledgement of the error."""
        self.principal: KafkaPrincipal | None = None
        self.expires_at_ms: int | None = None

    def respond(self, token: bytes) -> bytes:
        """Check the client's token, or refuse the login after the client has read the error.

        Raises:
            SaslError: the login failed.
        """
        if self._refusal is not None:
            raise self._refusal
        authorization_id, value = parse_initial_response(token)
        try:
            found = self._verify(value)
        except InvalidTokenError as error:
            status = json.dumps({"status": "invalid_token"}, separators=(",", ":"))
            self._refusal = SaslError(status, f"the token is invalid: {error}")
            return status.encode()
        if authorization_id not in ("", found.principal_name):
            raise SaslError(
                "Authentication failed: Client requested an authorization id that is different from the "
                "token's principal name"
            )
        self.principal = KafkaPrincipal(USER, found.principal_name)
        self.expires_at_ms = found.expires_at_ms
        return b""


class OAuthBearerClient:
    """The client's side."""

    def __init__(self, get_token: GetToken, extensions: Mapping[str, str]) -> None:
        """`extensions` have passed `check_extension`."""
        self.mechanism: Final = OAUTHBEARER
        self._get_token: Final = get_token
        self._extensions: Final = extensions
        self._is_begun = False
        self.is_complete = False

    def respond(self, challenge: bytes) -> bytes:
        """Return the token, or acknowledge the broker's refusal, which then ends the login.

        Raises:
            SaslError: there is no token.
        """
        if self._is_begun:
            self.is_complete = not challenge
            return _SEPARATOR.encode() if challenge else b""
        self._is_begun = True
        pairs = [f"{_AUTH_KEY}=Bearer {self._get_token().value}"]
        pairs += [f"{name}={value}" for name, value in self._extensions.items()]
        return ("n,," + _SEPARATOR + _SEPARATOR.join(pairs) + _SEPARATOR * 2).encode()


def parse_initial_response(message: bytes) -> tuple[str, str]:
    """Return the authorization id, empty if there is none, and the token of a client's first message.

    Raises:
        SaslError: the message is malformed.
    """
    try:
        match = _INITIAL.fullmatch(message.decode("utf-8"))
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise _malformed("it is not n,,^Aauth=Bearer …^A^A")
    pairs = dict(pair.partition("=")[::2] for pair in match["pairs"].split(_SEPARATOR) if pair)
    auth = _AUTH.fullmatch(pairs.get(_AUTH_KEY, ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        raise _malformed("it has no bearer token")
    authorization_id = (match["authorization"] or "").replace("=2C", ",").replace("=3D", "=")
    return authorization_id, auth["token"]


def check_extension(name: str, value: str) -> None:
    """Check an extension that a client sends beside its token (KIP-342).

    Raises:
        ValueError: its name or value cannot be sent.
    """
    if name == _AUTH_KEY or not _EXTENSION_NAME.fullmatch(name):
        raise ValueError(f"the extension {name} needs a name of letters other than {_AUTH_KEY}")
    if not _EXTENSION_VALUE.fullmatch(value):
        raise ValueError(f"the value of the extension {name} is empty or not printable ASCII")


def _malformed(why: str) -> SaslError:
    return SaslError(f"Authentication failed: the first message of {OAUTHBEARER} is malformed: {why}")
