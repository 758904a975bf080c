"""What Kafka's ``ssl.*`` settings mean, and which are refused."""

import os
import ssl

import pytest

from kalda.security.tls.contexts import client_context, server_context
from kalda.security.tls.principal_mapping import MappingRuleError, NoMatchingRuleError, PrincipalMapping
from kalda.security.tls.settings import ClientAuth, TlsSettings, TlsSettingsError, openssl_name
from tests.unit.security.authorities import NOW, VALID, authority


def settings(**values: object) -> TlsSettings:
    named = {f"ssl.{name.replace('_', '.')}": value for name, value in values.items()}
    return TlsSettings.read(named.get)


def test_the_settings_of_a_file_are_read() -> None:
    found = settings(
        keystore_location="/k",
        keystore_password="p",
        client_auth="required",
        enabled_protocols=("TLSv1.3", "TLSv1.1"),
        endpoint_identification_algorithm="HTTPS",
    )
    assert ("JKS", "/k", "p") == (found.key_store.type, found.key_store.location, found.key_store.password)
    assert found.client_auth is ClientAuth.REQUIRED
    assert ("TLSv1.3",) == found.protocols
    assert found.checks_host_name
    assert not settings(endpoint_identification_algorithm="").checks_host_name


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"keystore_location": "/k"}, "ssl.keystore.password"),
        (
            {"keystore_type": "PEM", "keystore_location": "/k", "keystore_password": "p"},
            "ssl.keystore.password",
        ),
        ({"keystore_key": "k", "keystore_certificate_chain": "c"}, "ssl.keystore.type"),
        ({"keystore_type": "PEM", "keystore_key": "k"}, "ssl.keystore.key"),
        ({"truststore_certificates": "c"}, "ssl.truststore.type"),
        ({"truststore_type": "PEM", "truststore_password": "p"}, "ssl.truststore.password"),
        (
            {"truststore_type": "PEM", "truststore_certificates": "c", "truststore_location": "/t"},
            "ssl.truststore.location",
        ),
        ({"enabled_protocols": "TLSv1,TLSv1.1"}, "ssl.enabled.protocols"),
        ({"enabled_protocols": "TLSv1.4"}, "ssl.enabled.protocols"),
        (
            {"enabled_protocols": "TLSv1.2", "cipher_suites": "TLS_AES_128_GCM_SHA256"},
            "ssl.enabled.protocols",
        ),
    ],
)
def test_contradictions_are_refused_by_name(values: dict[str, object], named: str) -> None:
    with pytest.raises(TlsSettingsError) as caught:
        settings(**values)
    assert named == caught.value.setting
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("iana", "openssl"),
    [
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_CBC_SHA256", "DHE-RSA-AES128-SHA256"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_suites_have_the_names_of_iana(iana: str, openssl: str) -> None:
    assert openssl == openssl_name(iana)


def test_suites_of_one_version_allow_only_that_version() -> None:
    assert ("TLSv1.3",) == settings(cipher_suites="TLS_AES_256_GCM_SHA384").protocols
    assert ("TLSv1.2",) == settings(cipher_suites="TLS_RSA_WITH_AES_128_CBC_SHA").protocols


def test_a_store_that_cannot_be_used_is_named_without_secrets(tmp_path: object) -> None:
    with pytest.raises(TlsSettingsError, match=r"`ssl\.keystore\.location`=/none of type JKS cannot be used"):
        server_context(settings(keystore_location="/none", keystore_password="geheim"))
    with pytest.raises(TlsSettingsError, match="needs a key store"):
        server_context(settings())
    with pytest.raises(TlsSettingsError) as caught:
        client_context(
            settings(keystore_type="PEM", keystore_key="geheim", keystore_certificate_chain="geheim")
        )
    assert "geheim" not in str(caught.value)


def test_a_key_of_another_certificate_is_refused() -> None:
    one, other = (authority().issue(name, NOW, VALID) for name in ("a", "b"))
    with pytest.raises(TlsSettingsError, match="key values mismatch"):
        server_context(
            settings(
                keystore_type="PEM",
                keystore_key=one.private_key.decode(),
                keystore_certificate_chain=other.certificate.decode(),
            )
        )


def test_without_files_in_memory_a_key_is_in_a_file_that_is_closed_and_then_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Windows does not open a file a second time."""
    monkeypatch.delattr(os, "memfd_create")
    load = ssl.SSLContext.load_cert_chain
    paths = []

    def load_closed(context: ssl.SSLContext, path: str) -> None:
        is_open = [os.path.realpath(each.path) for each in os.scandir("/proc/self/fd")]
        assert os.path.realpath(path) not in is_open
        assert 0o600 == os.stat(path).st_mode & 0o777
        paths.append(path)
        load(context, path)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", load_closed)
    own = authority().issue("a", NOW, VALID)
    server_context(
        settings(
            keystore_type="PEM",
            keystore_key=own.private_key.decode(),
            keystore_certificate_chain=own.certificate.decode(),
        )
    )

    assert [False] == [os.path.exists(path) for path in paths]


def test_unknown_suites_are_refused() -> None:
    with pytest.raises(TlsSettingsError, match="OpenSSL knows none of NO-SUCH"):
        client_context(settings(cipher_suites="NO-SUCH"))


DN = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("", DN),
        ("DEFAULT", DN),
        (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "Duke"),
        (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1@$2/L, DEFAULT".replace("@$2", "@x"), "duke@x"),
        (r"RULE:^CN=nobody$/x/, RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U", "DUKE"),
        ("RULE:^OU=x$/x/\nDEFAULT", DN),
    ],
)
def test_the_first_rule_that_matches_maps_the_name(rules: str, name: str) -> None:
    assert name == PrincipalMapping.parse(rules).name_of(DN)


def test_a_name_without_a_rule_is_refused() -> None:
    with pytest.raises(NoMatchingRuleError, match=r"no rule of ssl\.principal"):
        PrincipalMapping.parse("RULE:^CN=nobody$/x/").name_of(DN)


@pytest.mark.parametrize("rules", ["default", "RULE:^(/x/", "RULE:a/$1/", "RULE:a/b", "RULE:a/b/X"])
def test_malformed_rules_are_refused(rules: str) -> None:
    with pytest.raises(MappingRuleError):
        PrincipalMapping.parse(rules)
