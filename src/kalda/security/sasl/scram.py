"""Implements SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677) for both sides, as Kafka uses them.

Names and passwords are UTF-8 as they are: Kafka does not apply SASLprep. A client that logs in with a
delegation token adds the extension ``tokenauth=true`` to its first message (KIP-48). There is no channel
binding.

    client: n,,n=alice,r=<nonce>                                         first
    broker: r=<nonce><nonce>,s=<salt>,i=4096
    client: c=biws,r=<nonce><nonce>,p=<proof>                            final
    broker: v=<signature>
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Self

from kalda.security.principal import USER, KafkaPrincipal
from kalda.security.sasl.mechanism import SCRAM_SHA_256, SCRAM_SHA_512, SaslError

HASHES: Final[Mapping[str, str]] = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
MECHANISM_NUMBERS: Final[Mapping[str, int]] = {SCRAM_SHA_256: 1, SCRAM_SHA_512: 2}
"""The numbers of the mechanisms in the protocol (KIP-554)."""
MECHANISM_NAMES: Final[Mapping[int, str]] = {number: name for name, number in MECHANISM_NUMBERS.items()}

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
"""Kafka's bounds for the credentials that it stores."""

CLIENT_ITERATIONS_MAX: Final = 10_000_000
"""What a client computes at most for a broker: a second or so, where a hostile one could ask for days."""

SALT_BYTES: Final = 16
NONCE_BYTES: Final = 18
TOKEN_AUTH: Final = "tokenauth"

# Possessive, because a group that may backtrack takes 200 bytes for each character of a hostile name.
_NAME: Final = r"(?:[^\0=,]++|=2C|=3D)++"
_EXTENSIONS: Final = r"(?:,[A-Za-z]+=[^\0,]*+)*"
_CLIENT_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authorization>{_NAME}))?,(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>[!-+\--~]+)"
    rf"(?P<extensions>{_EXTENSIONS}))",
    re.ASCII | re.DOTALL,
)
_SERVER_FIRST: Final = re.compile(
    rf"r=(?P<nonce>[!-+\--~]+),s=(?P<salt>[A-Za-z0-9+/]+=*),i=(?P<iterations>[0-9]{{1,9}}){_EXTENSIONS}"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<unproved>c=(?P<binding>[A-Za-z0-9+/]+=*),r=(?P<nonce>[!-+\--~]+){_EXTENSIONS}),"
    r"p=(?P<proof>[A-Za-z0-9+/]+=*)"
)
_SERVER_FINAL: Final = re.compile(rf"(?:v=(?P<signature>[A-Za-z0-9+/]+=*)|e=(?P<error>[^\0,]+)){_EXTENSIONS}")
_BINDING: Final = b"n,,"


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """A stored password's verifier: enough to check a login, not enough to log in elsewhere."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    @classmethod
    def of_password(cls, mechanism: str, password: bytes, salt: bytes, iterations: int) -> Self:
        """Compute the credential of a password."""
        return cls.of_salted_password(
            mechanism, hashlib.pbkdf2_hmac(HASHES[mechanism], password, salt, iterations), salt, iterations
        )

    @classmethod
    def of_salted_password(cls, mechanism: str, salted: bytes, salt: bytes, iterations: int) -> Self:
        """Compute the credential of a salted password, which is what AlterUserScramCredentials has."""
        name = HASHES[mechanism]
        client_key = hmac.digest(salted, b"Client Key", name)
        stored_key = hashlib.new(name, client_key).digest()
        return cls(salt, stored_key, hmac.digest(salted, b"Server Key", name), iterations)

    def to_text(self) -> str:
        """Write it as Kafka keeps it in ZooKeeper."""
        salt, stored, server = (
            base64.b64encode(each).decode() for each in (self.salt, self.stored_key, self.server_key)
        )
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read what `to_text` wrote.

        Raises:
            ValueError: the text is malformed; the message does not show it.
        """
        fields = dict(part.partition("=")[::2] for part in text.split(","))
        if fields.keys() != {"salt", "stored_key", "server_key", "iterations"}:
            raise ValueError(f"a SCRAM credential has the fields {', '.join(sorted(fields))}")
        try:
            salt, stored, server = (
                base64.b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key")
            )
            return cls(salt, stored, server, int(fields["iterations"]))
        except (binascii.Error, ValueError):
            raise ValueError("a SCRAM credential is malformed") from None


FindCredential = Callable[[str], ScramCredential | None]
"""Returns the credential of a user."""


@dataclass(frozen=True, slots=True)
class TokenCredential:
    """The credential of a delegation token, and the owner that it logs in as."""

    credential: ScramCredential
    owner: KafkaPrincipal
    expires_at_ms: int


FindToken = Callable[[str], TokenCredential | None]
"""Returns the credential of a delegation token by its id."""


class ScramServer:
    """The broker's side."""

    def __init__(
        self,
        mechanism: str,
        find_credential: FindCredential,
        nonce: str,
        find_token: FindToken | None = None,
        *,
        decoy_key: bytes = b"",
    ) -> None:
        """Begin a login.

        Args:
            mechanism: One of `HASHES`.
            find_credential: Returns the credential of a user.
            nonce: Random text of this login alone; it has no comma.
            find_token: Returns that of a delegation token; None if there are none.
            decoy_key: What the salts of users that do not exist are made of; the same on all brokers, so
                that a user has the same salt there, and unknown to clients.
        """
        assert mechanism in HASHES, f"{mechanism} is not a SCRAM mechanism"
        assert nonce, "a login without a nonce could be replayed"
        assert "," not in nonce, "a comma ends a nonce"
        self._mechanism: Final = mechanism
        self._find_credential: Final = find_credential
        self._find_token: Final = find_token
        self._nonce = nonce
        self._decoy_key: Final = decoy_key
        self._first = ""
        self._credential: ScramCredential | None = None
        self._candidate: KafkaPrincipal | None = None
        """Who logs in; None if there is no such user, and the final message is refused."""
        self._is_begun = False
        self.principal: KafkaPrincipal | None = None
        self.expires_at_ms: int | None = None

    def respond(self, token: bytes) -> bytes:
        """Answer the client's first or final message.

        Raises:
            SaslError: the login failed.
        """
        try:
            text = token.decode("utf-8")
        except UnicodeDecodeError:
            raise self._malformed() from None
        if not self._is_begun:
            self._is_begun = True
            return self._answer_first(text)
        if self._credential is None or self.principal is not None:
            raise self._malformed()
        return self._answer_final(text, self._credential)

    def _answer_first(self, text: str) -> bytes:
        match = _CLIENT_FIRST.fullmatch(text)
        if match is None:
            raise self._malformed()
        name = decode_name(match["name"])
        extensions = dict(part.partition("=")[::2] for part in match["extensions"].split(",") if part)
        credential = None
        if extensions.get(TOKEN_AUTH, "").lower() == "true":
            found = None if self._find_token is None else self._find_token(name)
            if found is not None:
                credential, self._candidate = found.credential, found.owner
                self.expires_at_ms = found.expires_at_ms
        else:
            credential = self._find_credential(name)
            if credential is not None:
                self._candidate = KafkaPrincipal(USER, name)
        self._credential = credential = credential or _decoy(self._mechanism, name, self._decoy_key)
        if match["authorization"] is not None and decode_name(match["authorization"]) != name:
            raise SaslError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        if credential.iterations < ITERATIONS_MIN:
            raise SaslError(
                f"Authentication failed: Iterations {credential.iterations} is less than the minimum "
                f"{ITERATIONS_MIN} for {self._mechanism}"
            )
        self._nonce = match["nonce"] + self._nonce
        salt = base64.b64encode(credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._first = f"{match['bare']},{answer}"
        return answer.encode()

    def _answer_final(self, text: str, credential: ScramCredential) -> bytes:
        assert self._first, "the final message is checked against the first ones"
        match = _CLIENT_FINAL.fullmatch(text)
        # librdkafka up to 2.6.0 sends its own nonce in front of this one; Kafka 3.9 checks the end as well.
        if match is None or not match["nonce"].endswith(self._nonce):
            raise self._malformed()
        name = HASHES[self._mechanism]
        message = f"{self._first},{match['unproved']}".encode()
        signature = hmac.digest(credential.stored_key, message, name)
        proof = _base64(match["proof"])
        if proof is None or len(proof) != len(signature):
            raise self._refused()
        client_key = _xor(proof, signature)
        is_right = hmac.compare_digest(hashlib.new(name, client_key).digest(), credential.stored_key)
        if not is_right or self._candidate is None:
            raise self._refused()
        self.principal = self._candidate
        return b"v=" + base64.b64encode(hmac.digest(credential.server_key, message, name))

    def _malformed(self) -> SaslError:
        return SaslError(
            f"Authentication failed: a message of {self._mechanism} is malformed or out of order"
        )

    def _refused(self) -> SaslError:
        return SaslError(
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            + self._mechanism
        )


class ScramClient:
    """The client's side."""

    def __init__(
        self, mechanism: str, name: str, password: str, nonce: str, *, is_token: bool = False
    ) -> None:
        """`nonce` is random text of this login alone; with `is_token`, name and password are a token's."""
        assert mechanism in HASHES, f"{mechanism} is not a SCRAM mechanism"
        assert nonce, "a login without a nonce could be replayed"
        assert "," not in nonce, "a comma ends a nonce"
        self.mechanism: Final = mechanism
        self.is_complete = False
        self._password: Final = password.encode()
        extensions = f",{TOKEN_AUTH}=true" if is_token else ""
        self._bare: Final = f"n={encode_name(name)},r={nonce}{extensions}"
        self._nonce: Final = nonce
        self._signature: bytes | None = None
        self._is_begun = False

    def respond(self, challenge: bytes) -> bytes:
        """Return the next message, or check the broker's signature and return nothing.

        Raises:
            SaslError: the broker broke the protocol or does not know the password.
        """
        if not self._is_begun:
            self._is_begun = True
            return _BINDING + self._bare.encode()
        text = challenge.decode("utf-8", "replace")
        if self._signature is None:
            return self._final(text)
        match = _SERVER_FINAL.fullmatch(text)
        if match is None or match["error"] is not None:
            reason = "its last message is malformed" if match is None else match["error"]
            raise SaslError(f"{self.mechanism}: the broker refused the login: {reason}")
        if not hmac.compare_digest(_base64(match["signature"]) or b"", self._signature):
            raise SaslError(f"{self.mechanism}: the broker does not know the password of this user")
        self.is_complete = True
        return b""

    def _final(self, text: str) -> bytes:
        match = _SERVER_FIRST.fullmatch(text)
        salt = None if match is None else _base64(match["salt"])
        if match is None or salt is None or not match["nonce"].startswith(self._nonce):
            raise SaslError(f"{self.mechanism}: the broker's first message is malformed")
        iterations = int(match["iterations"])
        if not ITERATIONS_MIN <= iterations <= CLIENT_ITERATIONS_MAX:
            raise SaslError(
                f"{self.mechanism}: the broker asks for {iterations} iterations, which is outside "
                f"{ITERATIONS_MIN}..{CLIENT_ITERATIONS_MAX}"
            )
        name = HASHES[self.mechanism]
        salted = hashlib.pbkdf2_hmac(name, self._password, salt, iterations)
        unproved = f"c={base64.b64encode(_BINDING).decode()},r={match['nonce']}"
        message = f"{self._bare},{text},{unproved}".encode()
        client_key = hmac.digest(salted, b"Client Key", name)
        stored_key = hashlib.new(name, client_key).digest()
        proof = _xor(client_key, hmac.digest(stored_key, message, name))
        server_key = hmac.digest(salted, b"Server Key", name)
        self._signature = hmac.digest(server_key, message, name)
        return f"{unproved},p={base64.b64encode(proof).decode()}".encode()


def encode_name(name: str) -> str:
    """Write a name as SCRAM's messages carry it.

    >>> encode_name("a=b,c")
    'a=3Db=2Cc'
    """
    return name.replace("=", "=3D").replace(",", "=2C")


def decode_name(text: str) -> str:
    """Read a name that `encode_name` wrote."""
    return text.replace("=2C", ",").replace("=3D", "=")


def _decoy(mechanism: str, name: str, key: bytes) -> ScramCredential:
    """Return a credential for a user that does not exist, so that the answer does not show that.

    It has what a user has by default, and always the same for one name. No password fits it.
    """
    salt, stored_key, server_key = (
        hmac.digest(key, f"{purpose} {mechanism} {name}".encode(), HASHES[mechanism])
        for purpose in ("salt", "stored", "server")
    )
    return ScramCredential(salt[:SALT_BYTES], stored_key, server_key, ITERATIONS_MIN)


def _base64(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return None


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(one ^ other for one, other in zip(left, right, strict=True))
