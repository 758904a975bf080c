"""The rules that shorten Kerberos principals, with Kafka's meaning."""

import pytest

from kalda.security.sasl.kerberos_names import KerberosNameError, KerberosNames

RULES = (
    r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g",
    "RULE:[2:$1](App.*)s/o/x/g",
    "RULE:[2:$1;$2](.*;admin)s/;admin//",
    "RULE:[1:$1@$0](.*@OTHER.COM)s/@.*///U",
    "DEFAULT",
)


@pytest.mark.parametrize(
    ("principal", "name"),
    [
        ("App.service-name@REALM.COM", "service-name"),
        ("Appoo/host@REALM.COM", "Appxx"),
        ("alice/admin@REALM.COM", "alice"),
        ("bob@OTHER.COM", "BOB"),
        ("kafka/host@REALM.COM", "kafka"),
        ("alice@REALM.COM", "alice"),
    ],
)
def test_the_first_rule_that_applies_makes_the_name(principal: str, name: str) -> None:
    assert name == KerberosNames.parse(RULES, "REALM.COM").name_of(principal)


@pytest.mark.parametrize(
    ("rules", "principal", "reason"),
    [
        (("DEFAULT",), "alice@OTHER.COM", "no rule"),
        (("DEFAULT",), "alice", "no principal"),
        (("RULE:[1:$1@$0]",), "alice@OTHER.COM", "no user name"),
    ],
)
def test_a_principal_without_a_name_is_refused(rules: tuple[str, ...], principal: str, reason: str) -> None:
    with pytest.raises(KerberosNameError, match=reason):
        KerberosNames.parse(rules, "REALM.COM").name_of(principal)


@pytest.mark.parametrize("rule", ["", "default", "RULE:[x:$1]", "RULE:[1:$1]((", "RULE:[1:$1](*)"])
def test_a_malformed_rule_is_refused(rule: str) -> None:
    with pytest.raises(KerberosNameError):
        KerberosNames.parse((rule,), "REALM.COM")
