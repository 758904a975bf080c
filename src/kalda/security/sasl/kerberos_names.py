"""Shortens Kerberos principals to user names by rules, as Kafka's ``KerberosShortNamer`` does.

RULE:[1:$1@$0](.*@EXAMPLE.COM)s/@.*//    alice@EXAMPLE.COM is alice
DEFAULT                                  the first part, of principals of the own realm
"""

import re
from dataclasses import dataclass
from typing import Final, Self

_RULE: Final = re.compile(
    r"RULE:\[(?P<count>\d+):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<pattern>[^/]*)/(?P<replacement>[^/]*)/(?P<is_global>g)?)?/?(?P<case>[LU])?"
)
_PRINCIPAL: Final = re.compile(r"(?P<first>[^/@]+)(?:/(?P<second>[^/@]*))?@(?P<realm>[^/@]+)")
_DEFAULT: Final = "DEFAULT"


class KerberosNameError(ValueError):
    """A rule is malformed, or no rule applies to a principal."""


@dataclass(frozen=True, slots=True)
class KerberosNames:
    """The rules of a broker; the first that applies decides."""

    rules: tuple[re.Match[str] | None, ...]
    """None is the rule DEFAULT."""
    realm: str
    """The own realm."""

    @classmethod
    def parse(cls, rules: tuple[str, ...], realm: str) -> Self:
        """Read ``sasl.kerberos.principal.to.local.rules``.

        Raises:
            KerberosNameError: a rule is malformed.
        """
        return cls(tuple(_parsed(rule.strip()) for rule in rules), realm)

    def name_of(self, principal: str) -> str:
        """Return the user's name.

        Raises:
            KerberosNameError: no rule applies.
        """
        found = _PRINCIPAL.fullmatch(principal)
        if found is None:
            raise KerberosNameError(f"{principal} is no principal of Kerberos")
        parts = [part for part in (found["first"], found["second"]) if part is not None]
        for rule in self.rules:
            if rule is None:
                if found["realm"] == self.realm:
                    return parts[0]
                continue
            name = _applied(rule, found["realm"], parts)
            if name is None:
                continue
            if "/" in name or "@" in name:
                raise KerberosNameError(
                    f"the rule {rule[0]} makes {name} of {principal}, which is no user name"
                )
            return {"L": name.lower(), "U": name.upper()}.get(rule["case"] or "", name)
        raise KerberosNameError(f"no rule of `sasl.kerberos.principal.to.local.rules` applies to {principal}")


def _parsed(rule: str) -> re.Match[str] | None:
    if rule == _DEFAULT:
        return None
    match = _RULE.fullmatch(rule)
    if match is None:
        raise KerberosNameError(f"{rule} is neither {_DEFAULT} nor RULE:[count:format](match)s/…/…/")
    for name in ("match", "pattern"):
        try:
            re.compile(match[name] or "")
        except re.error as error:
            raise KerberosNameError(f"{rule}: {match[name]} is no regular expression: {error}") from None
    return match


def _applied(rule: re.Match[str], realm: str, parts: list[str]) -> str | None:
    """Return the name that a rule makes; None if it does not apply."""
    if int(rule["count"]) != len(parts):
        return None
    values = [realm, *parts]
    base = re.sub(
        r"\$(\d)", lambda found: values[int(found[1])] if int(found[1]) < len(values) else "", rule["format"]
    )
    if rule["match"] is not None and not re.fullmatch(rule["match"], base):
        return None
    if rule["pattern"] is None:
        return base
    replacement = re.sub(r"\$(\d)", r"\\\1", rule["replacement"].replace("\\", r"\\"))
    return re.sub(rule["pattern"], replacement, base, count=0 if rule["is_global"] else 1)
