"""Reads what the processes of a secured cluster log: no secret, and audit lines within their limit."""

import json
import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Final

from kalda.common.log_limiter import LIMIT_BURST, LIMIT_SECONDS
from tests.chaos.secured_visit import STRANGERS_ADDRESS

RSS_BYTES_MAX: Final = 400 * 1024 * 1024
"""Of one broker; it starts with about 90 MB."""

_PERIODS_IN_A_WINDOW: Final = 3
"""The end of one period, the begin of the next, and a restart between them."""
_EVENT: Final = re.compile(r'^(?P<time>\S+ \S+) INFO (?P<json>\{"event".*\}) \(\S+\)$')


def secrets_in(paths: Iterable[Path], secrets: Iterable[str]) -> list[str]:
    """Return where a secret stands, without the secret."""
    found = []
    wanted = [secret.encode() for secret in secrets]
    for path in paths:
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            if b"PRIVATE KEY" in line or any(secret in line for secret in wanted):
                found.append(f"{path.name}:{number} has a secret")
    return found


class Audit:
    """The audit lines of all logs."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.logins: Final[Counter[str]] = Counter()
        """How many succeeded and failed, with those whose lines were suppressed."""
        self.problems: Final[list[str]] = []
        for path in paths:
            self._read(path)

    def _read(self, path: Path) -> None:
        recent: dict[tuple[str, str, str], deque[float]] = defaultdict(deque)
        for line in path.read_text(errors="replace").splitlines():
            match = _EVENT.match(line)
            if match is None:
                continue
            event = json.loads(match["json"])
            kind, outcome, address = event["event"], event["outcome"], event["address"]
            if kind == "login":
                self.logins[outcome] += event.get("suppressed", 1)
            # A change fails while there is no controller, too.
            if kind != "change" and outcome != "success" and address != STRANGERS_ADDRESS:
                self.problems.append(f"{path.name}: {line}")
            if "suppressed" not in event:
                lines = recent[kind, outcome, address]
                lines.append(datetime.fromisoformat(match["time"].replace(",", ".")).timestamp())
                while lines[-1] - lines[0] > LIMIT_SECONDS:
                    lines.popleft()
                if len(lines) == LIMIT_BURST * _PERIODS_IN_A_WINDOW + 1:
                    self.problems.append(f"{path.name}: more audit lines than their limit: {line}")


def rss_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 if it has just ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0
