"""Keeps what Spark's Java virtual machine writes to stderr from users who did not ask for it.

The virtual machine announces its modules, its logger and the host's address before any setting of a logger
has an effect, and a failed query ends with pages of Java frames, and of PySpark's own, whose workers find
their connections closed. Other lines of workers, such as what a function of the user prints, pass through.
"""

import os
import re
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

_KEPT_LINES: Final = 100
"""Of the start; enough for the reason why it failed."""
_LINE_BYTES_MAX: Final = 1 << 16
_ANNOUNCED: Final = re.compile(
    r"WARNING: |Using Spark's default log4j|Setting default log level|To adjust logging level"
)
_NOISE: Final = re.compile(
    r"""\d\d/\d\d/\d\d\ \d\d:\d\d:\d\d\ (?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\   # a line of Spark's logger
    |\s+at\ [\w.$/<>]+\(  # a frame, and the lines around frames
    |\s+\.\.\.\ \d+\ more
    |(?:\s*(?:Caused\ by|Suppressed):\ |Exception\ in\ thread\ ").*
    """,
    re.VERBOSE,
)
_TRACEBACK: Final = "Traceback (most recent call last):"
_TRACEBACK_LINES_MAX: Final = 1_000
_SHOWN: Final = "java.lang.OutOfMemoryError"
"""The end of the virtual machine follows, and this is the reason."""


class JavaStartError(Exception):
    """The Java virtual machine did not start; the message says why, if it is known."""


class JavaOutput:
    """The lines that a virtual machine writes to stderr, read by a thread until the virtual machine ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: Final = descriptor
        self._lines: Final[deque[str]] = deque(maxlen=_KEPT_LINES)
        self._lock: Final = threading.Lock()
        self._is_starting = True
        self._traceback: Final[list[str]] = []
        """The lines of a Python traceback up to now, until its last one shows whose it is."""
        self._thread: Final = threading.Thread(target=self._read, name="java-output", daemon=True)
        self._thread.start()

    def started(self) -> None:
        """Let lines that are no noise pass from now on; drop those of the start."""
        with self._lock:
            self._is_starting = False
            self._lines.clear()

    def failed(self) -> str:
        """Return the first line that was written instead of a start, when the virtual machine has ended."""
        self._thread.join(timeout=5.0)
        with self._lock:
            said = (each.strip() for each in self._lines if not _ANNOUNCED.match(each))
            return next(filter(None, said), "")

    def _read(self) -> None:
        with open(self._descriptor, "rb") as stream:
            while line := stream.readline(_LINE_BYTES_MAX):
                self._take(line.decode(errors="replace"))

    def _take(self, line: str) -> None:
        with self._lock:
            if self._is_starting:
                self._lines.append(line)
                return
        traceback = self._traceback
        if traceback or line.startswith(_TRACEBACK):
            traceback.append(line)
            if line.startswith((" ", _TRACEBACK)) and len(traceback) < _TRACEBACK_LINES_MAX:
                return
            shown = [] if is_of_pyspark(traceback) else [*traceback]
            traceback.clear()
        else:
            shown = [] if is_noise(line) else [line]
        if shown:
            sys.stderr.write("".join(shown))
            sys.stderr.flush()


def is_noise(line: str) -> bool:
    """Return whether a line is of the virtual machine or of its logger, and nothing that a user can use."""
    return any(each.match(line) for each in (_NOISE, _ANNOUNCED)) and _SHOWN not in line


def is_of_pyspark(traceback: Sequence[str]) -> bool:
    """Return whether all frames of a Python traceback are PySpark's."""
    frames = [each for each in traceback if each.startswith("  File ")]
    return bool(frames) and all("/pyspark/" in each for each in frames)


def launch_quietly(settings: Mapping[str, str]) -> JavaOutput | None:
    """Start a virtual machine for the sessions of this process and take its output.

    Return None where there is one already, or another program started it (`spark-submit`).

    Raises:
        JavaStartError: it did not start.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return None
    conf = SparkConf()
    for name, value in settings.items():
        conf.set(name, value)
    read_end, write_end = os.pipe()
    output = JavaOutput(read_end)
    try:
        gateway = launch_gateway(conf, popen_kwargs={"stderr": write_end})  # type: ignore[no-untyped-call]  # of PySpark
    except (PySparkRuntimeError, OSError) as error:
        os.close(write_end)
        write_end = -1
        raise JavaStartError(
            "Spark's Java virtual machine did not start; Spark needs Java 17 or 21, which JAVA_HOME names or "
            f"the PATH has: {output.failed() or error}"
        ) from error
    finally:
        if write_end >= 0:
            os.close(write_end)
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)
    return output
