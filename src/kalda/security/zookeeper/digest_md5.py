"""Implements both sides of SASL DIGEST-MD5 (RFC 2831), which ZooKeeper uses for names and passwords.

Server to client: ``realm="zk-sasl-md5",nonce="…",charset=utf-8,algorithm=md5-sess``; client to server:
``username="bob",realm=…,nonce=…,nc=00000001,cnonce="…",digest-uri="zookeeper/zk-sasl-md5",response=…``; and
back ``rspauth=…``, which proves that the server knows the password too. Only ``qop=auth`` is spoken, and
every exchange has a nonce of its own: a response cannot be replayed.

MD5 does not protect a password against a reader of the network; use it over TLS.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from typing import Final

REALM: Final = "zk-sasl-md5"
"""The realm of every ZooKeeper server, which also stands for its host in the ``digest-uri``."""

DIGEST_URI: Final = f"zookeeper/{REALM}"

CHALLENGE_BYTES_MAX: Final = 2048
RESPONSE_BYTES_MAX: Final = 4096
"""The limits of RFC 2831; everything above is refused unparsed."""

_DIRECTIVE: Final = re.compile(
    rb"[ \t\r\n,]*(?P<name>[A-Za-z0-9-]+)[ \t\r\n]*=[ \t\r\n]*"
    rb'(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<token>[^\s",=]+))[ \t\r\n]*(?=,|$)',
    re.DOTALL,
)
_END: Final = re.compile(rb"[ \t\r\n,]*", re.DOTALL)
_ESCAPE: Final = re.compile(rb"\\(.)", re.DOTALL)
_NONCE_COUNT: Final = "00000001"


class DigestMd5Error(Exception):
    """The peer broke the protocol or does not know the password; the message has no secrets."""


class DigestMd5Server:
    """One client's login: a first, empty token, then the client's response.

    >>> server = DigestMd5Server({"bob": "secret"}.get, "nonce")
    >>> server.evaluate(b"")
    b'realm="zk-sasl-md5",nonce="nonce",charset=utf-8,algorithm=md5-sess'
    """

    def __init__(self, password_of: Callable[[str], str | None], nonce: str) -> None:
        """`nonce` must be unpredictable and of this login only."""
        self._password_of = password_of
        self._nonce = nonce
        self._is_challenged = False
        self._is_over = False
        self.user: str | None = None
        """The user who has logged in; None until then."""

    def evaluate(self, token: bytes) -> bytes:
        """Take a token of the client and return the one to send.

        Raises:
            DigestMd5Error: the login failed; it cannot go on.
        """
        if self._is_over:
            raise DigestMd5Error("the login is over, and the client goes on with it")
        if not self._is_challenged:
            if token:
                raise DigestMd5Error("the client's first token is not empty")
            self._is_challenged = True
            text = f'realm="{REALM}",nonce="{self._nonce}",charset=utf-8,algorithm=md5-sess'
            return text.encode()
        self._is_over = True
        return self._verify(_directives(token, RESPONSE_BYTES_MAX))

    def _verify(self, given: Mapping[str, bytes]) -> bytes:
        charset = "utf-8" if given.get("charset", b"").lower() == b"utf-8" else "latin-1"
        try:
            user = given["username"].decode(charset)
            realm = given.get("realm", b"").decode(charset)
            authorization = given["authzid"].decode(charset) if "authzid" in given else None
            cnonce, response = given["cnonce"], given["response"]
            fixed = {name: given[name].decode("ascii") for name in ("nonce", "nc", "digest-uri")}
        except KeyError as error:
            raise DigestMd5Error(f"the client's response has no {error.args[0]}") from None
        except UnicodeDecodeError:
            raise DigestMd5Error(f"the client's response is not in {charset}") from None
        if given.get("qop", b"auth") != b"auth":
            raise DigestMd5Error("the client asks for a quality of protection other than auth")
        if not hmac.compare_digest(fixed["nonce"].encode(), self._nonce.encode()):
            raise DigestMd5Error("the client's response is for the nonce of another login")
        if fixed["nc"] != _NONCE_COUNT or realm != REALM or fixed["digest-uri"].lower() != DIGEST_URI:
            raise DigestMd5Error(f"the client's response is not for nc {_NONCE_COUNT} of {DIGEST_URI}")
        password = self._password_of(user)
        # An unknown user costs the same computation and gets the same answer as a wrong password.
        exchange = _Exchange(user, password or "", self._nonce.encode(), cnonce, authorization)
        uri = given["digest-uri"]
        is_right = hmac.compare_digest(exchange.value(b"AUTHENTICATE:" + uri), response)
        if password is None or not is_right:
            raise DigestMd5Error(f"the password of user {user!r} is wrong, or there is no such user")
        self.user = user
        return b"rspauth=" + exchange.value(b":" + uri)


class DigestMd5Client:
    """A client's side: `evaluate` the server's two tokens; the first one to send is empty."""

    def __init__(self, user: str, password: str, cnonce: str) -> None:
        """`cnonce` must be unpredictable and of this login only."""
        self._user = user
        self._password = password
        self._cnonce = cnonce.encode()
        self._exchange: _Exchange | None = None
        self.is_complete = False
        """Whether the server has proved that it knows the password."""

    def evaluate(self, challenge: bytes) -> bytes | None:
        """Take a token of the server; return the one to send, or None if nothing more is to be sent.

        Raises:
            DigestMd5Error: the server offers something else than DIGEST-MD5, or does not know the password.
        """
        given = _directives(challenge, CHALLENGE_BYTES_MAX)
        uri = DIGEST_URI.encode()
        if self._exchange is not None:
            if not hmac.compare_digest(given.get("rspauth", b""), self._exchange.value(b":" + uri)):
                raise DigestMd5Error("the server has not proved that it knows the password")
            self.is_complete = True
            return None
        nonce = given.get("nonce")
        if not nonce or given.get("algorithm") != b"md5-sess":
            raise DigestMd5Error("the server's challenge has no nonce, or is not for md5-sess")
        if b"auth" not in [each.strip() for each in given.get("qop", b"auth").split(b",")]:
            raise DigestMd5Error("the server does not offer the quality of protection auth")
        self._exchange = _Exchange(self._user, self._password, nonce, self._cnonce, None)
        fields = {
            "username": _quoted(self._user.encode()),
            "realm": _quoted(REALM.encode()),
            "nonce": _quoted(nonce),
            "nc": _NONCE_COUNT.encode(),
            "cnonce": _quoted(self._cnonce),
            "digest-uri": _quoted(uri),
            "response": self._exchange.value(b"AUTHENTICATE:" + uri),
            "qop": b"auth",
        }
        return b"charset=utf-8," + b",".join(name.encode() + b"=" + value for name, value in fields.items())


class _Exchange:
    """Computes the values with which both sides prove that they know the password."""

    def __init__(
        self, user: str, password: str, nonce: bytes, cnonce: bytes, authorization: str | None
    ) -> None:
        secret = hashlib.md5(b":".join(map(_hashed, (user, REALM, password)))).digest()
        parts = [secret, nonce, cnonce]
        if authorization is not None:
            parts.append(authorization.encode())
        self._session_key: Final = hashlib.md5(b":".join(parts)).hexdigest().encode()
        self._middle: Final = b":".join((nonce, _NONCE_COUNT.encode(), cnonce, b"auth"))

    def value(self, subject: bytes) -> bytes:
        """Return the proof in hexadecimal; `subject` is ``AUTHENTICATE:`` or ``:`` and the digest-uri."""
        end = hashlib.md5(subject).hexdigest().encode()
        return hashlib.md5(b":".join((self._session_key, self._middle, end))).hexdigest().encode()


def _hashed(text: str) -> bytes:
    # RFC 2831: ISO 8859-1 where the text allows it, although UTF-8 is sent.
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _quoted(value: bytes) -> bytes:
    return b'"' + re.sub(rb'(["\\])', rb"\\\1", value) + b'"'


def _directives(token: bytes, bytes_max: int) -> dict[str, bytes]:
    """Parse ``name=value,name="value"``; names are in lower case, and none comes twice."""
    if len(token) > bytes_max:
        raise DigestMd5Error(f"a token of {len(token)} bytes is above the limit of {bytes_max}")
    found: dict[str, bytes] = {}
    position = 0
    while (match := _DIRECTIVE.match(token, position)) is not None:
        name = match["name"].decode("ascii").lower()
        if name in found:
            raise DigestMd5Error(f"the token has the directive {name} twice")
        quoted = match["quoted"]
        found[name] = match["token"] if quoted is None else _ESCAPE.sub(rb"\1", quoted)
        position = match.end()
    end = _END.match(token, position)
    assert end is not None, "the pattern matches the empty text"
    if not found or end.end() != len(token):
        raise DigestMd5Error(f"byte {position} of the token begins no directive")
    return found
