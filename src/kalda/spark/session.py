"""The settings of a Spark session that make reading and writing topics fast, and a session that has them.

`kalda pipeline` runs with these settings, the how-to recommends them, and the benchmarks give them to both
sides. They change no result of a query. This module starts a session only in `build_session`.

Each setting is one that Spark accepts in any mode (local, standalone, Kubernetes, YARN), and one whose effect
was measured.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_STARTUP_DIRECTORY: Final = Path(__file__).with_name("startup")


_CHECKPOINT_FILES: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


def recommended_settings() -> dict[str, str]:
    """Return the settings that Spark sessions should have that read or write topics.

    - Unix sockets between the JVM and its Python workers: over TCP, each exchange with a worker waits about
      40 ms for a delayed acknowledgement, and writing Arrow batches takes more CPU time.
    - A larger buffer for that exchange: at 64 KiB, an Arrow batch of 1 MB takes many reads and writes.
    - Filters are offered to Python sources, which `pushdown` needs.
    - Checkpoints are written through Hadoop's `FileSystem`. Through `FileContext`, Spark's default, a file on
      a local disk takes 20 to 40 ms instead of 5 to 10, and a batch writes two. Both write a file aside and
      rename it to its place.
    """
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.buffer.size": "1048576",
        "spark.python.worker.reuse": "true",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_FILES,
    }


def build_session(
    app_name: str,
    master: str | None = None,
    extra: Mapping[str, str] | None = None,
    *,
    is_quiet: bool = False,
) -> "SparkSession":
    """Return the running session, or start one with the recommended settings.

    The Python processes of a session that is started here import the installed pyspark, whose bytecode is
    kept, instead of Spark's archive of it: the source of a stream starts in half the time. On Linux, the
    second and later sources are forked from a process that has imported all; the environment variable
    ``KALDA_SPARK_KEEP_SOURCE=0`` turns that off.

    Args:
        app_name: shown in Spark's user interface. master: `spark.master`, e.g. ``local[2]`` or
        ``spark://host:7077``; None for what `spark-submit` or the
            environment says, else ``local[*]``.
        extra: more settings; they replace recommended ones of the same name.
        is_quiet: whether warnings of a virtual machine that starts, and tracebacks of Java, are kept from
            stderr.

    Raises:
        JavaStartError: with `is_quiet`, the virtual machine did not start.
    """
    from pyspark.sql import SparkSession

    from kalda.spark.java_output import launch_quietly

    # Spark looks for data sources and starts workers with the Python that these name.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    settings = {"spark.app.name": app_name, **({} if master is None else {"spark.master": master})}
    settings |= recommended_settings() | dict(extra or {})
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    with startup_path():
        output = launch_quietly(settings) if is_quiet else None
        session: SparkSession = builder.getOrCreate()
    if is_quiet:
        session.sparkContext.setLogLevel("FATAL")
    if output is not None:
        output.started()
    return session


def exit_code_of_java(session: "SparkSession", wait_s: float = 0.0) -> int | None:
    """Return the exit code of the session's Java virtual machine, negative for a signal.

    Return None while it runs, and for one that this process did not start, as under `spark-submit`.

    Args:
        session: the session, which may have lost its virtual machine.
        wait_s: how long to wait for the end. A call can fail some milliseconds before the process has ended.
    """
    process: subprocess.Popen[bytes] | None = getattr(session.sparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        return process.wait(wait_s)
    except subprocess.TimeoutExpired:
        return None


@contextmanager
def startup_path() -> Iterator[None]:
    """Give a virtual machine that starts now the directory of `startup` for its Python processes."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_STARTUP_DIRECTORY), *([before] if before else [])])
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
