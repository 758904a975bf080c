"""Reads Java key stores of the format JKS.

The format is that of ``sun.security.provider.JavaKeyStore``: private keys are masked with a key stream of
SHA-1 digests, and a digest over password and content protects the whole. Both are weak by today's measure;
Java itself writes PKCS12 since version 9. Kalda reads JKS so that existing stores can be used.
"""

import hashlib
import hmac
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Final, NamedTuple

from kalda.security.tls.der import (
    OBJECT_IDENTIFIER,
    OCTET_STRING,
    SEQUENCE,
    DerError,
    elements,
    object_identifier,
)

MAGIC: Final = 0xFEEDFEED

_HEADER: Final = Struct(">III")
_INT: Final = Struct(">I")
_SHORT: Final = Struct(">H")
_TIMESTAMP_BYTES: Final = 8
_DIGEST_BYTES: Final = 20
_WHITENER: Final = b"Mighty Aphrodite"
_KEY_PROTECTOR: Final = "1.3.6.1.4.1.42.2.17.1.1"
_PRIVATE_KEY, _TRUSTED_CERTIFICATE = 1, 2


class JksError(ValueError):
    """A key store is damaged, or the password is wrong."""


class PrivateKeyEntry(NamedTuple):
    """A private key, still masked, with its certificates in DER, that of the key first."""

    alias: str
    protected_key: bytes
    chain: tuple[bytes, ...]


class KeyStore(NamedTuple):
    """The contents of a key store: keys, and trusted certificates in DER."""

    keys: tuple[PrivateKeyEntry, ...]
    certificates: tuple[bytes, ...]


def is_jks(data: bytes) -> bool:
    """Whether the bytes begin as a JKS key store does."""
    return data[: _INT.size] == _INT.pack(MAGIC)


def parse_jks(data: bytes, password: str | None) -> KeyStore:
    """Read a key store; without a password its integrity is not checked, as in Java.

    Raises:
        JksError: it is damaged, or the password is wrong.
    """
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None:
        found = hashlib.sha1(_utf16(password) + _WHITENER + body).digest()
        if not hmac.compare_digest(found, digest):
            raise JksError("the password is wrong, or the key store was changed")
    try:
        return _Reader(body).store()
    except (StructError, UnicodeDecodeError) as error:
        raise JksError(f"the key store is damaged: {error}") from error


def unprotect(protected: bytes, password: str) -> bytes:
    """Return a private key as PKCS #8 in DER.

    Raises:
        JksError: the password is wrong, or the key is protected in another way.
    """
    try:
        (outer,) = elements(protected)
        algorithm, masked = elements(outer.content)
        identifier = next(elements(algorithm.content))
        if (outer.tag, masked.tag, identifier.tag) != (SEQUENCE, OCTET_STRING, OBJECT_IDENTIFIER):
            raise JksError("the key is not an EncryptedPrivateKeyInfo")
        name = object_identifier(identifier.content)
    except (DerError, ValueError, StopIteration) as error:
        raise JksError(f"the key is damaged: {error}") from error
    if name != _KEY_PROTECTOR:
        raise JksError(f"the key is protected by {name}; only {_KEY_PROTECTOR} is known")
    secret = _utf16(password)
    content = masked.content
    if len(content) < 2 * _DIGEST_BYTES:
        raise JksError(f"the key is damaged: {len(content)} bytes")
    stream, encrypted = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:-_DIGEST_BYTES]
    key = bytearray()
    for start in range(0, len(encrypted), _DIGEST_BYTES):
        stream = hashlib.sha1(secret + stream).digest()
        block = encrypted[start : start + _DIGEST_BYTES]
        key += bytes(left ^ right for left, right in zip(block, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), content[-_DIGEST_BYTES:]):
        raise JksError("the password of the key is wrong")
    return bytes(key)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data: Final = data
        self._position = 0

    def store(self) -> KeyStore:
        magic, version, count = self._unpack(_HEADER)
        if magic != MAGIC or version not in (1, 2):
            raise JksError(f"not a JKS key store of version 1 or 2: it begins with {self._data[:8].hex()}")
        keys: list[PrivateKeyEntry] = []
        certificates: list[bytes] = []
        for _ in range(count):
            (kind,) = self._unpack(_INT)
            alias = self._text()
            self._bytes(_TIMESTAMP_BYTES)
            if kind == _PRIVATE_KEY:
                key = self._sized()
                (length,) = self._unpack(_INT)
                if length > len(self._data):
                    raise JksError(f"the key store is damaged: {length} certificates of key {alias}")
                chain = tuple(self._certificate(version) for _ in range(length))
                keys.append(PrivateKeyEntry(alias, key, chain))
            elif kind == _TRUSTED_CERTIFICATE:
                certificates.append(self._certificate(version))
            else:
                raise JksError(f"entry {alias} is of kind {kind}, which is neither a key nor a certificate")
        return KeyStore(tuple(keys), tuple(certificates))

    def _certificate(self, version: int) -> bytes:
        if version == 2 and (kind := self._text()) != "X.509":
            raise JksError(f"a certificate is of type {kind}, not X.509")
        return self._sized()

    def _unpack(self, struct: Struct) -> tuple[int, ...]:
        found = struct.unpack_from(self._data, self._position)
        self._position += struct.size
        return found

    def _bytes(self, count: int) -> bytes:
        end = self._position + count
        if end > len(self._data):
            raise JksError(f"the key store is damaged: it ends within {count} bytes at {self._position}")
        found = self._data[self._position : end]
        self._position = end
        return found

    def _sized(self) -> bytes:
        return self._bytes(self._unpack(_INT)[0])

    def _text(self) -> str:
        return self._bytes(self._unpack(_SHORT)[0]).decode("utf-8")


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")
