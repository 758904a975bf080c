"""Maps the names in certificates to principals by ``ssl.principal.mapping.rules`` (KIP-371).

A rule is ``DEFAULT`` or ``RULE:pattern/replacement/[LU]``; ``$1`` in the replacement is the first group of
the pattern, L and U make the result lower or upper case. The first rule whose pattern matches the whole name
counts.

>>> PrincipalMapping.parse("RULE:^CN=(.*?),OU=Ops.*$/$1/L,DEFAULT").name_of("CN=Alice,OU=Ops,O=Acme")
'alice'
"""

import re
from dataclasses import dataclass
from typing import Final, Self

_RULE: Final = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))"
    r"\s*(?:[,\n]|$)"
)
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d)")


class MappingRuleError(ValueError):
    """The rules are malformed."""


class NoMatchingRuleError(Exception):
    """No rule applies to a name."""


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str] | None
    """None for DEFAULT."""
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        found = _REFERENCE.sub(lambda part: part[1] or _group(match, int(part[2])), self.replacement)
        return {"L": found.lower(), "U": found.upper()}.get(self.case, found)


@dataclass(frozen=True, slots=True)
class PrincipalMapping:
    """The rules of one listener."""

    rules: tuple[_Rule, ...]
    text: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the rules; an empty text is DEFAULT.

        Raises:
            MappingRuleError: a rule is malformed; the message shows it.
        """
        rules: list[_Rule] = []
        position = 0
        stripped = text.strip()
        while position < len(stripped):
            match = _RULE.match(stripped, position)
            if match is None:
                raise MappingRuleError(
                    f"{stripped[position:]} is not a rule; write DEFAULT or RULE:pattern/replacement/[LU]"
                )
            rules.append(_rule(match))
            position = match.end()
        return cls(tuple(rules) or (_Rule(None),), stripped or "DEFAULT")

    def name_of(self, distinguished_name: str) -> str:
        """Return the name of the principal.

        Raises:
            NoMatchingRuleError: no rule applies.
        """
        for rule in self.rules:
            found = rule.apply(distinguished_name)
            if found is not None:
                return found
        raise NoMatchingRuleError(
            f"no rule of ssl.principal.mapping.rules={self.text} applies to {distinguished_name}"
        )


def _rule(match: re.Match[str]) -> _Rule:
    if match["default"]:
        return _Rule(None)
    try:
        pattern = re.compile(match["pattern"])
    except re.error as error:
        raise MappingRuleError(f"{match[0].strip()}: the pattern is malformed: {error}") from None
    for part in _REFERENCE.finditer(match["replacement"]):
        if part[2] is not None and int(part[2]) > pattern.groups:
            raise MappingRuleError(f"{match[0].strip()}: the pattern has no group {part[2]}")
    return _Rule(pattern, match["replacement"], match["case"])


def _group(match: re.Match[str], number: int) -> str:
    return match[number] or ""
