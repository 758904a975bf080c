"""Counts what the old performance tools consume, and formats their lines."""

import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from kalda.command.command import Tool
from kalda.command.output import Form
from kalda.tools.legacy.simple_date_format import SimpleDateFormat

_COLUMNS: Final = "fetch.size, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec"
_MB: Final = 1024 * 1024
_SECONDS_MIN: Final = 1e-6


class Lines:
    """The output of one run; `options` are those that all the tools have."""

    def __init__(self, tool: Tool, options: dict[str, Any]) -> None:
        self._tool: Final = tool
        self._size: Final[int] = options["fetch_size"]
        self._hides_header: Final[bool] = options["hide_header"]
        self._dates: Final = SimpleDateFormat(options["date_format"])
        self._lock: Final = threading.Lock()
        self.interval: Final[int | None] = (
            options["reporting_interval"] if options["show_detailed_stats"] else None
        )
        """The messages between two detailed lines; None for the sum alone."""

    def header(self) -> None:
        """Print the names of the columns."""
        if not self._hides_header and self._tool.output.form is not Form.JSON:
            times = "start.time, end.time" if self.interval is None else "time"
            self._tool.output.item(None, f"{times}, {_COLUMNS}")

    def total(self, start: float, reports: "Sequence[ConsumptionReport]", waited_s: float = 0.0) -> None:
        """Print the sum, unless detailed lines were asked for; the wait for an end counts for no rate."""
        if self.interval is None:
            messages, size = sum(each.messages for each in reports), sum(each.size for each in reports)
            now = time.time()
            self.line((start, now), None, now - start - waited_s, (messages, size), (messages, size))

    def line(
        self,
        times: Sequence[float],
        thread: int | None,
        seconds: float,
        total: tuple[int, int],
        lately: tuple[int, int],
    ) -> None:
        """Print messages and bytes: all of them, and the rates of the last seconds."""
        seconds = max(seconds, _SECONDS_MIN)
        shown = [self._dates.format(datetime.fromtimestamp(each, UTC).astimezone()) for each in times]
        if thread is not None:
            shown.append(str(thread))
        megabytes, rate, count_rate = total[1] / _MB, lately[1] / _MB / seconds, lately[0] / seconds
        numbers = f"{self._size}, {megabytes:.4f}, {rate:.4f}, {total[0]}, {count_rate:.4f}"
        with self._lock:
            self._tool.output.item(
                {
                    "fetch_size": self._size,
                    "thread": thread,
                    "mb": megabytes,
                    "mb_per_second": rate,
                    "messages": total[0],
                    "messages_per_second": count_rate,
                },
                f"{', '.join(shown)}, {numbers}",
            )


class ConsumptionReport:
    """What one thread consumed."""

    def __init__(self, lines: Lines, thread: int | None = None) -> None:
        self.lines: Final = lines
        self._thread: Final = thread
        self.messages = 0
        self.size = 0
        """Bytes of payloads."""
        self.start = self._last = time.time()
        self._last_messages = self._last_size = 0

    def add(self, messages: int, size: int) -> None:
        """Count messages; print a line if one is due."""
        self.messages += messages
        self.size += size
        interval = self.lines.interval
        if interval is not None and self.messages - self._last_messages >= interval:
            self.print_detail()

    def print_detail(self) -> None:
        """Print what came since the last detailed line."""
        now = time.time()
        lately = self.messages - self._last_messages, self.size - self._last_size
        self.lines.line((now,), self._thread, now - self._last, (self.messages, self.size), lately)
        self._last, self._last_messages, self._last_size = now, self.messages, self.size
