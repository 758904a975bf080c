"""Writes what an auditor asks for: who logged in, who was refused, who changed what.

One line of JSON for each event on a logger of its own, at a limited rate for each kind of event and
address. The lines hold no secret: no password, token, key or value of a setting. Names come from clients, so
long ones are cut: a line is always whole JSON, and shorter than what the log's formatters cut off.

    {"event":"login","outcome":"failure","address":"10.0.0.7","listener":"SASL_SSL","reason":"…"}
    {"event":"request","outcome":"denied","principal":"User:alice","operation":"Write","resource":"Topic:t",…}
    {"event":"change","outcome":"success","principal":"User:admin","request":"CreateTopics",…}
    {"event":"login","outcome":"failure","address":"10.0.0.7","suppressed":9990}
"""

import json
import logging
from typing import Final

from kalda.common.log_limiter import LIMIT_BURST, LIMIT_SECONDS, SOURCES_MAX, LineBudget
from kalda.runtime.system.clock import monotonic

logger: Final = logging.getLogger(__name__)

TEXT_CHARACTERS_MAX: Final = 300
"""Of one text; names of topics have 249 at most."""

TEXT_JSON_MAX: Final = 600
"""What one text takes in a line, where a character that is not ASCII takes 6 or 12."""

LIST_JSON_MAX: Final = 1200
"""What a list of texts takes in a line; it ends with the number of those that are left out."""

_OTHER_ADDRESSES: Final = "other addresses"
"""Stands for those above `SOURCES_MAX`, which share one count."""

SUCCESS: Final = "success"
FAILURE: Final = "failure"
DENIED: Final = "denied"


class AuditLog:
    """Writes the events of one broker, or of another server.

    Args:
        burst: How many events of one kind and address are written in ten seconds; None is `LIMIT_BURST`.
    """

    def __init__(self, burst: int | None = None) -> None:
        self._burst: Final = LIMIT_BURST if burst is None else burst
        self._budgets: Final[dict[tuple[str, str], LineBudget]] = {}

    def write(self, event: str, outcome: str, *, address: str, **fields: object) -> None:
        """Write one event, or count it if there were too many; a field that is None is left out.

        Args:
            event: ``login``, ``request`` or ``change``.
            outcome: ``success``, ``failure`` or ``denied``.
            address: Of the client; events of one address are limited together.
            fields: What else is known, without secrets.
        """
        budget = self._budgets.get((event, outcome))
        if budget is None:
            budget = LineBudget(self._burst, LIMIT_SECONDS, SOURCES_MAX)
            self._budgets[event, outcome] = budget
        now = monotonic()
        if budget.is_due(now):
            self.report_suppressed()
        if budget.admit(address, _OTHER_ADDRESSES, now, lambda: ""):
            known = {name: _bounded(value) for name, value in fields.items() if value is not None}
            _log({"event": event, "outcome": outcome, "address": address, **known})

    def report_suppressed(self) -> None:
        """Write how many events were only counted in the periods that are over; for a timer as well."""
        now = monotonic()
        for (event, outcome), budget in self._budgets.items():
            for address, count, _ in budget.take_ended(now):
                _log({"event": event, "outcome": outcome, "address": address, "suppressed": count})


def _log(line: dict[str, object]) -> None:
    logger.info("%s", json.dumps(line, separators=(",", ":"), default=str))


def _bounded(value: object) -> object:
    if isinstance(value, str):
        return _short(value)
    if not isinstance(value, list):
        return value
    kept: list[object] = []
    left = LIST_JSON_MAX
    for each in value:
        item = _bounded(each)
        left -= len(json.dumps(item))
        if left < 0:
            return [*kept, f"{len(value) - len(kept)} more"]
        kept.append(item)
    return kept


def _short(text: str) -> str:
    head = text[:TEXT_CHARACTERS_MAX]
    if len(json.dumps(head)) > TEXT_JSON_MAX:
        head = head[: TEXT_JSON_MAX // 12]
    return text if len(head) == len(text) else f"{head}... ({len(text) - len(head)} more characters)"
