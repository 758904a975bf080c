"""Makes OpenSSL contexts from `TlsSettings`, and makes them again when a store's file has changed.

The `ssl` module loads keys from files only, so a key goes through a file in memory that no other process can
open by name (or, where the system has none, through a temporary file that is deleted at once).
"""

import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from kalda.runtime.system.named_file import read_named_file
from kalda.security.tls.settings import ClientAuth, StoreSettings, TlsSettings, TlsSettingsError
from kalda.security.tls.stores import (
    KeyStore,
    StoreError,
    TrustStore,
    parse_key_store,
    parse_pem_key,
    parse_trust_store,
)

ReadFile = Callable[[str], bytes]
StoreFingerprint = tuple[tuple[int, int, int] | None, ...]

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def read_file(path: str) -> bytes:
    """Read a store from the file system; never waits, as a broker reads changed stores on its event loop."""
    return read_named_file(path, wait_seconds=0)


def server_context(settings: TlsSettings, read: ReadFile = read_file) -> ssl.SSLContext:
    """Return the context of a listener.

    Raises:
        TlsSettingsError: there is no key store, or a store cannot be read.
    """
    key_store = load_key_store(settings.key_store, read)
    if key_store is None:
        raise TlsSettingsError(
            "ssl.keystore.location",
            "a listener with TLS needs a key store: set `ssl.keystore.location`, or `ssl.keystore.key` and "
            "`ssl.keystore.certificate.chain`",
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _configure(context, settings)
    _use_key(context, key_store)
    if settings.client_auth is not ClientAuth.NONE:
        _use_trust(context, load_trust_store(settings.trust_store, read))
        required = settings.client_auth is ClientAuth.REQUIRED
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context


def client_context(settings: TlsSettings, read: ReadFile = read_file) -> ssl.SSLContext:
    """Return the context of a client; without a trust store it trusts the system's authorities.

    Raises:
        TlsSettingsError: a store cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.checks_host_name
    _configure(context, settings)
    key_store = load_key_store(settings.key_store, read)
    if key_store is not None:
        _use_key(context, key_store)
    _use_trust(context, load_trust_store(settings.trust_store, read))
    return context


def load_key_store(store: StoreSettings, read: ReadFile = read_file) -> KeyStore | None:
    """Read the key store; None if there is none.

    Raises:
        TlsSettingsError: it cannot be read.
    """
    if not store.is_set:
        return None
    setting = "ssl.keystore.location" if store.location is not None else "ssl.keystore.key"
    try:
        if store.location is None:
            assert store.key is not None
            assert store.certificates is not None
            return parse_pem_key(store.key.encode(), store.certificates.encode(), store.key_password)
        return parse_key_store(store.type, read(store.location), store.password, store.key_password)
    except (StoreError, OSError) as error:
        raise _unreadable(setting, store, error) from None


def load_trust_store(store: StoreSettings, read: ReadFile = read_file) -> TrustStore | None:
    """Read the trust store; None if there is none.

    Raises:
        TlsSettingsError: it cannot be read.
    """
    if not store.is_set:
        return None
    setting = "ssl.truststore.location" if store.location is not None else "ssl.truststore.certificates"
    try:
        if store.location is None:
            assert store.certificates is not None
            return parse_trust_store("PEM", store.certificates.encode(), None)
        return parse_trust_store(store.type, read(store.location), store.password)
    except (StoreError, OSError) as error:
        raise _unreadable(setting, store, error) from None


def _unreadable(setting: str, store: StoreSettings, error: Exception) -> TlsSettingsError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    # A key in the settings themselves is never shown.
    shown = "" if store.location is None else f"={store.location}"
    return TlsSettingsError(setting, f"`{setting}`{shown} of type {store.type} cannot be used: {reason}")


def _configure(context: ssl.SSLContext, settings: TlsSettings) -> None:
    context.minimum_version = _VERSIONS[settings.protocols[0]]
    context.maximum_version = _VERSIONS[settings.protocols[-1]]
    # Clients cannot renegotiate: a peer could make the broker sign without end.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    if settings.cipher_suites:
        try:
            context.set_ciphers(":".join(settings.cipher_suites))
        except ssl.SSLError:
            raise TlsSettingsError(
                "ssl.cipher.suites",
                f"`ssl.cipher.suites`: OpenSSL knows none of {', '.join(settings.cipher_suites)}",
            ) from None


def _use_key(context: ssl.SSLContext, store: KeyStore) -> None:
    with _file_of(store.private_key + store.certificates) as path:
        try:
            context.load_cert_chain(path)
        except ssl.SSLError as error:
            reason = (error.reason or str(error)).replace("_", " ").lower()
            raise TlsSettingsError(
                "ssl.keystore.location", f"the key store's key and certificate cannot be used: {reason}"
            ) from None


def _use_trust(context: ssl.SSLContext, store: TrustStore | None) -> None:
    if store is None:
        context.load_default_certs()
    elif store.revocations:
        with _file_of(store.certificates + store.revocations) as path:
            context.load_verify_locations(cafile=path)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    else:
        context.load_verify_locations(cadata=store.certificates.decode("ascii"))


@contextmanager
def _file_of(data: bytes) -> Iterator[str]:
    """Yield the path of a file that has `data` while the block runs, and that only this process can find."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("kalda-tls", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    descriptor, path = tempfile.mkstemp()
    try:
        # Closed before it is read, because Windows does not open it a second time.
        with open(descriptor, "wb") as file:
            file.write(data)
        yield path
    finally:
        os.unlink(path)


def store_fingerprint(settings: TlsSettings) -> StoreFingerprint:
    """Return a value that changes with the stores' files: inode, size and time of the last write."""
    return tuple(_file_state(store.location) for store in (settings.key_store, settings.trust_store))


def _file_state(path: str | None) -> tuple[int, int, int] | None:
    if path is None:
        return None
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns
