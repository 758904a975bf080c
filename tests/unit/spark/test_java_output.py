"""What of the virtual machine's output a user sees."""

import os
from collections.abc import Mapping

import pytest

pytest.importorskip("pyspark")

import pyspark.java_gateway
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError

from kalda.spark.java_output import JavaOutput, JavaStartError, is_noise, launch_quietly


@pytest.mark.parametrize(
    "line",
    [
        "WARNING: Using incubator modules: jdk.incubator.vector",
        "Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties",
        "26/11/28 13:17:30 WARN Utils: Your hostname, vm, resolves to a loopback address",
        'Setting default log level to "WARN".',
        "To adjust logging level use sc.setLogLevel(newLevel).",
        'Exception in thread "stream execution thread for a [id = 6ce4]" java.lang.StackOverflowError',
        "\tat java.base/java.util.regex.Pattern$Loop.match(Pattern.java:4894)",
        "\tat jdk.proxy3/jdk.proxy3.$Proxy41.call(Unknown Source)",
        "\tat org.apache.spark.sql.execution.SQLExecution$.$anonfun$withNewExecutionId0$8(A.scala:2)",
        "\tat java.base/java.lang.invoke.LambdaForm$DMH/0x00007f.<init>(LambdaForm)",
        "Caused by: java.lang.InterruptedException",
        "\t... 12 more",
    ],
)
def test_lines_of_java_are_noise(line: str) -> None:
    assert is_noise(f"{line}\n")


@pytest.mark.parametrize(
    "line",
    [
        "order 7 has no price",
        "  at noon (UTC)",
        "2026-11-28 13:40:16,721 WARNING batch 1 of orders is interrupted",
        'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space',
    ],
)
def test_lines_of_users_and_the_end_of_memory_are_not(line: str) -> None:
    assert not is_noise(f"{line}\n")


def test_lines_pass_behind_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    read_end, write_end = os.pipe()
    output = JavaOutput(read_end)
    output._take("WARNING: a module\n")
    output._take("of the start\n")
    output.started()
    with os.fdopen(write_end, "wb") as stream:
        stream.write(b"26/11/28 13:17:30 WARN Utils: a host\nof a user \xff\n")
    output._thread.join()
    assert "of a user \N{REPLACEMENT CHARACTER}\n" == capsys.readouterr().err


BROKEN_PIPE = """Traceback (most recent call last):
  File "/v/site-packages/pyspark/daemon.py", line 264, in manager
    code = worker(sock, authenticated)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/v/site-packages/pyspark/daemon.py", line 95, in worker
    outfile.flush()
BrokenPipeError: [Errno 32] Broken pipe
"""


def test_tracebacks_of_pyspark_alone_are_noise(capsys: pytest.CaptureFixture[str]) -> None:
    """A worker that ends finds its connection closed; a function of the user may print a traceback too."""
    users = BROKEN_PIPE.replace('pyspark/daemon.py", line 95', 'shop/steps.py", line 95')
    read_end, write_end = os.pipe()
    output = JavaOutput(read_end)
    output.started()
    with os.fdopen(write_end, "wb") as stream:
        stream.write(f"{BROKEN_PIPE}{users}{BROKEN_PIPE}of a user\n".encode())
    output._thread.join()
    assert f"{users}of a user\n" == capsys.readouterr().err


def test_a_failed_start_says_what_java_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark alone says that the gateway process exited before sending its port number."""

    def launch(_: object, popen_kwargs: Mapping[str, int]) -> None:
        os.write(popen_kwargs["stderr"], b"WARNING: a module\n\nJAVA_HOME is not set\nmore\n")
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr(pyspark.java_gateway, "launch_gateway", launch)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    with pytest.raises(JavaStartError, match=r"needs Java 17 or 21, .* the PATH has: JAVA_HOME is not set$"):
        launch_quietly({"spark.master": "local[1]"})


def test_a_virtual_machine_that_runs_keeps_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", object())
    assert launch_quietly({}) is None
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert launch_quietly({}) is None
