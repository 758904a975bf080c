"""The queries of Grafana dashboards and of Prometheus' rules."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SELECTOR = re.compile(
    r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{([^}]*)\}|\b((?:kafka|kalda|process)_[a-z0-9_]+)\b(?!\{)"
)
_MATCHER = re.compile(r"""([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*(?:"([^"]*)"|'([^']*)')""")
_RULE = re.compile(r"^ +- alert: (\w+)\n +expr: (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Query:
    """One query of a panel or a rule."""

    title: str
    expression: str


@dataclass(frozen=True)
class Selector:
    """The series that a part of an expression asks for."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether a series is meant; a label that it lacks is empty, as for Prometheus."""
        return name == self.name and all(
            _holds(labels.get(label, ""), operator, value) for label, operator, value in self.matchers
        )


def dashboard_queries(path: Path) -> list[Query]:
    """Return the queries of all panels, each expression once."""
    found: dict[str, Query] = {}
    for panel in _panels(json.loads(path.read_text(encoding="utf-8"))):
        for target in panel.get("targets") or ():
            expression = target.get("expr", "").strip()
            if expression:
                found.setdefault(expression, Query(panel.get("title", ""), expression))
    return list(found.values())


def rule_queries(path: Path) -> list[Query]:
    """Return the expressions of alert rules, which stand on one line each."""
    return [Query(*match) for match in _RULE.findall(path.read_text(encoding="utf-8"))]


def selectors(expression: str) -> list[Selector]:
    """Return what an expression selects, whatever it does with it."""
    found = []
    for with_matchers, matchers, bare in _SELECTOR.findall(expression):
        parsed = tuple((match[0], match[1], match[2] or match[3]) for match in _MATCHER.findall(matchers))
        found.append(Selector(with_matchers or bare, parsed))
    return found


def substitute(expression: str, variables: Mapping[str, str]) -> str:
    """Put values in for Grafana's variables, ``$name`` and ``${name}``; the longest names first."""
    for name in sorted(variables, key=len, reverse=True):
        expression = expression.replace(f"${{{name}}}", variables[name]).replace(f"${name}", variables[name])
    return expression


def _panels(node: Any) -> Iterator[dict[str, Any]]:
    for panel in node.get("panels") or ():
        yield panel
        yield from _panels(panel)
    for row in node.get("rows") or ():
        yield from _panels(row)


def _holds(found: str, operator: str, value: str) -> bool:
    if operator in ("=", "!="):
        return (found == value) == (operator == "=")
    return (re.fullmatch(value, found) is not None) == (operator == "=~")
