"""Encrypts the passwords among dynamic settings as Kafka stores them in ZooKeeper (KIP-226).

The key is derived from ``password.encoder.secret``; everything else that decryption needs stands beside the
encrypted password, in Kafka's form, so that Kafka reads what Kalda wrote and the other way round::

    keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/CBC/PKCS5Padding,keyLength:128,salt:...,
    iterations:4096,initializationVector:...,encryptedPassword:...,passwordLength:11
"""

import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from kalda.runtime.system.random import SYSTEM_RANDOM

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.modes import CBC

DEFAULT_KEY_FACTORY: Final = "PBKDF2WithHmacSHA512"
KEY_FACTORIES: Final = {
    f"PBKDF2WithHmac{name.upper()}": name for name in ("sha1", "sha256", "sha384", "sha512")
}
ITERATIONS_MAX: Final = 10_000_000
"""Kafka's default is 4096. More than this would stop a broker for seconds with each password."""

_SALT_BYTES: Final = 256
_GCM: Final = "AES/GCM/NoPadding"
_GCM_IV_BYTES: Final = 12
_GCM_TAG_BYTES: Final = 16
_AES_BITS: Final = (128, 192, 256)
KEY_BITS: Final[Mapping[str, tuple[int, ...]]] = {
    "AES/CBC/PKCS5Padding": _AES_BITS,
    "AES/CFB/PKCS5Padding": _AES_BITS,
    "AES/OFB/PKCS5Padding": _AES_BITS,
    _GCM: _AES_BITS,
    "DESede/CBC/PKCS5Padding": (192,),
    "DES/CBC/PKCS5Padding": (64,),
}
"""The ciphers that Kafka is tested with, and the lengths of their keys."""


class PasswordEncoderError(ValueError):
    """A stored password cannot be decrypted, or an algorithm is not known; the message names no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """How passwords are encrypted; the settings ``password.encoder.…`` but for the secret.

    Raises:
        PasswordEncoderError: an algorithm is not known, or does not take the length of the key.
    """

    cipher: str = "AES/CBC/PKCS5Padding"
    key_factory: str = DEFAULT_KEY_FACTORY
    key_length: int = 128
    """In bits."""
    iterations: int = 4096

    def __post_init__(self) -> None:
        if self.cipher not in KEY_BITS:
            raise PasswordEncoderError(
                f"the cipher {self.cipher} is not known; it is one of {', '.join(KEY_BITS)}"
            )
        if self.key_factory not in KEY_FACTORIES:
            raise PasswordEncoderError(
                f"the key factory {self.key_factory} is not known; it is one of {', '.join(KEY_FACTORIES)}"
            )
        if self.key_length not in KEY_BITS[self.cipher]:
            allowed = " or ".join(map(str, KEY_BITS[self.cipher]))
            raise PasswordEncoderError(
                f"{self.cipher} takes keys of {allowed} bits, not of {self.key_length}"
            )
        if not 1 <= self.iterations <= ITERATIONS_MAX:
            raise PasswordEncoderError(f"{self.iterations} iterations; at most {ITERATIONS_MAX} are possible")


class PasswordEncoder:
    """Encrypts and decrypts passwords with one secret."""

    def __init__(
        self, secret: str, encoding: Encoding, random_bytes: Callable[[int], bytes] = SYSTEM_RANDOM.randbytes
    ) -> None:
        self._secret: Final = secret.encode()
        self._encoding: Final = encoding
        self._random_bytes: Final = random_bytes

    def encode(self, password: str) -> str:
        """Encrypt a password under a new salt."""
        encoding, plain = self._encoding, password.encode()
        salt = self._random_bytes(_SALT_BYTES)
        assert len(salt) == _SALT_BYTES, f"a salt of {len(salt)} bytes"
        is_gcm = encoding.cipher == _GCM
        vector = self._random_bytes(_GCM_IV_BYTES if is_gcm else _block_bytes(encoding.cipher))
        key = self._key(encoding, salt)
        if is_gcm:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            encrypted = AESGCM(key).encrypt(vector, plain, None)
        else:
            size = len(vector)
            padding = size - len(plain) % size
            encryptor = _cipher(encoding.cipher, key, vector).encryptor()
            encrypted = encryptor.update(plain + bytes([padding]) * padding) + encryptor.finalize()
        fields = {
            "keyFactoryAlgorithm": encoding.key_factory,
            "cipherAlgorithm": encoding.cipher,
            "keyLength": str(encoding.key_length),
            "salt": _text(salt),
            "iterations": str(encoding.iterations),
            "encryptedPassword": _text(encrypted),
            "passwordLength": str(_java_length(password)),
            "initializationVector": _text(vector),
        }
        if is_gcm:
            fields["authenticationTagLength"] = str(8 * _GCM_TAG_BYTES)
        return ",".join(f"{name}:{value}" for name, value in fields.items())

    def decode(self, text: str) -> str:
        """Decrypt a stored password, whatever encoding it was stored in.

        Raises:
            PasswordEncoderError: it is damaged, or was encrypted with another secret.
        """
        fields = _fields(text)
        try:
            encoding = Encoding(
                cipher=fields["cipherAlgorithm"],
                key_factory=fields["keyFactoryAlgorithm"],
                key_length=int(fields["keyLength"]),
                iterations=int(fields["iterations"]),
            )
            salt, vector = _bytes(fields["salt"]), _bytes(fields["initializationVector"])
            encrypted = _bytes(fields["encryptedPassword"])
            length = int(fields["passwordLength"])
            tag_bits = int(fields["authenticationTagLength"]) if encoding.cipher == _GCM else 0
        except KeyError as error:
            raise PasswordEncoderError(f"it has no {error.args[0]}") from None
        except PasswordEncoderError:
            raise
        except ValueError:
            raise PasswordEncoderError("a number or a text in base64 is malformed") from None
        plain = self._decrypted(encoding, salt, vector, encrypted, tag_bits)
        try:
            password = plain.decode()
        except UnicodeDecodeError:
            raise PasswordEncoderError(_WRONG_SECRET) from None
        if _java_length(password) != length:
            raise PasswordEncoderError(_WRONG_SECRET)
        return password

    def _decrypted(
        self, encoding: Encoding, salt: bytes, vector: bytes, encrypted: bytes, tag_bits: int
    ) -> bytes:
        key = self._key(encoding, salt)
        if encoding.cipher == _GCM:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            if tag_bits != 8 * _GCM_TAG_BYTES or not 8 <= len(vector) <= 128:
                raise PasswordEncoderError("its tag or its initialization vector has no usable length")
            try:
                return AESGCM(key).decrypt(vector, encrypted, None)
            except InvalidTag:
                raise PasswordEncoderError(_WRONG_SECRET) from None
        size = _block_bytes(encoding.cipher)
        if len(vector) != size or not encrypted or len(encrypted) % size:
            raise PasswordEncoderError("its initialization vector or its length does not fit the cipher")
        decryptor = _cipher(encoding.cipher, key, vector).decryptor()
        padded = decryptor.update(encrypted) + decryptor.finalize()
        padding = padded[-1]
        if not 1 <= padding <= size or padded[-padding:] != bytes([padding]) * padding:
            raise PasswordEncoderError(_WRONG_SECRET)
        return padded[:-padding]

    def _key(self, encoding: Encoding, salt: bytes) -> bytes:
        return hashlib.pbkdf2_hmac(
            KEY_FACTORIES[encoding.key_factory],
            self._secret,
            salt,
            encoding.iterations,
            encoding.key_length // 8,
        )


_WRONG_SECRET: Final = "it is damaged, or was encrypted with another secret"


def _cipher(name: str, key: bytes, vector: bytes) -> "Cipher[CBC]":
    # Imported when needed: a broker without stored passwords starts faster.
    from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import CBC

    algorithm, mode, _ = name.split("/")
    if algorithm == "AES":
        return Cipher(AES(key), CBC(vector) if mode == "CBC" else _feedback(mode, vector))
    # DES is Triple DES with three equal keys.
    return Cipher(TripleDES(key * 3 if algorithm == "DES" else key), CBC(vector))


def _feedback(mode: str, vector: bytes) -> "CBC":
    # Where these modes are depends on the version of the library. All modes with a vector are used alike.
    try:
        from cryptography.hazmat.decrepit.ciphers import modes
    except ImportError:
        from cryptography.hazmat.primitives.ciphers import modes  # type: ignore[no-redef]
    return cast("CBC", modes.CFB(vector) if mode == "CFB" else modes.OFB(vector))


def _block_bytes(cipher: str) -> int:
    return 16 if cipher.startswith("AES/") else 8


def _java_length(text: str) -> int:
    """Return the length that Java gives a text: the number of its UTF-16 units."""
    return len(text.encode("utf-16-le")) // 2


def _fields(text: str) -> dict[str, str]:
    fields = {}
    for entry in text.split(","):
        name, _, value = entry.strip().rpartition(":")
        fields[name.strip()] = value.strip()
    return fields


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError(text) from None
