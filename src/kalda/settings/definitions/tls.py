"""Declares the settings of TLS. Each can be set for one listener: ``listener.name.<name>.ssl.…``."""

from typing import Final

from kalda.common.config_def import UpdateMode, Validator, one_of
from kalda.common.settings import LOW, Settings, boolean, password, string, string_list
from kalda.security.tls.principal_mapping import MappingRuleError, PrincipalMapping
from kalda.security.tls.stores import STORE_TYPES

_PER_BROKER: Final = UpdateMode.PER_BROKER


def _is_mapping(value: object) -> bool:
    try:
        PrincipalMapping.parse(str(value))
    except MappingRuleError:
        return False
    return True


_STORE_TYPE: Final = Validator(
    f"one of {', '.join(STORE_TYPES)}", lambda value: str(value).upper() in STORE_TYPES
)


class TlsConfig(Settings):
    """Key and trust stores, versions and ciphers, and what a client's certificate means."""

    ssl_allow_dn_changes = boolean(
        False, "Whether a new certificate may have another distinguished name.", importance=LOW
    )
    ssl_allow_san_changes = boolean(
        False, "Whether a new certificate may lack alternative names of the old one.", importance=LOW
    )
    ssl_cipher_suites = string_list(
        (),
        "Cipher suites of TLS 1.2 that may be used, by the names of IANA; empty allows OpenSSL's. Those of "
        "TLS 1.3 are allowed all or none: none if only suites of TLS 1.2 are named.",
        update_mode=_PER_BROKER,
    )
    ssl_client_auth = string(
        "none",
        "Whether clients must, may or need not show a certificate.",
        one_of("required", "requested", "none"),
        update_mode=_PER_BROKER,
    )
    ssl_enabled_protocols = string_list(
        ("TLSv1.2", "TLSv1.3"),
        "TLS versions that are accepted; older ones than TLSv1.2 are never.",
        update_mode=_PER_BROKER,
    )
    ssl_endpoint_identification_algorithm = string(
        "https",
        "How this broker checks the host name in another broker's certificate; empty does not check.",
        importance=LOW,
        update_mode=_PER_BROKER,
    )
    ssl_key_password = password(None, "Password of the private key.", update_mode=_PER_BROKER)
    ssl_keystore_certificate_chain = password(
        None, "Certificates in PEM form, in place of a key store file.", update_mode=_PER_BROKER
    )
    ssl_keystore_key = password(
        None, "Private key in PEM form, in place of a key store file.", update_mode=_PER_BROKER
    )
    ssl_keystore_location = string(
        None,
        "The key store's file. It is read again when it changes, and when this setting is altered.",
        update_mode=_PER_BROKER,
    )
    ssl_keystore_password = password(None, "Password of the key store's file.", update_mode=_PER_BROKER)
    ssl_keystore_type = string(
        "JKS", "Form of the key store: JKS, PKCS12 or PEM.", _STORE_TYPE, update_mode=_PER_BROKER
    )
    ssl_principal_mapping_rules = string(
        "DEFAULT",
        "Rules that shorten distinguished names to user names, first match wins.",
        Validator("DEFAULT or RULE:pattern/replacement/[LU], separated by commas", _is_mapping),
        importance=LOW,
    )
    ssl_truststore_certificates = password(
        None, "Trusted certificates in PEM form, in place of a trust store file.", update_mode=_PER_BROKER
    )
    ssl_truststore_location = string(
        None,
        "The trust store's file; one in PEM may hold revocation lists beside the certificates. It is read "
        "again when it changes.",
        update_mode=_PER_BROKER,
    )
    ssl_truststore_password = password(None, "Password of the trust store's file.", update_mode=_PER_BROKER)
    ssl_truststore_type = string(
        "JKS", "Form of the trust store: JKS, PKCS12 or PEM.", _STORE_TYPE, update_mode=_PER_BROKER
    )
