"""The programs and commands in the documentation run as they are printed, and print what the page says."""

import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from kalda import Consumer, serializers
from kalda.testing import Cluster, KaldaProcess
from tests.integration.nats.jetstream_servers import jetstream_broker
from tests.integration.nats.raw_nats import nats_port

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
HOME = DOCS / "index.md"
TAB = re.compile(r'^=== "(?P<name>[^"]+)"\n\n    ```python\n(?P<code>.*?)^    ```$', re.MULTILINE | re.DOTALL)
PROGRAMS = {match["name"]: textwrap.dedent(match["code"]) for match in TAB.finditer(HOME.read_text())}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1, settings={"transaction.two.phase.commit.enable": "true"}) as cluster:
        yield cluster


@pytest.mark.parametrize(
    "name", ["Kalda", "Kalda with asyncio", "confluent-kafka", "kafka-python", "aiokafka"]
)
def test_the_home_page_reads_back_what_it_produced(name: str, cluster: Cluster) -> None:
    """A stranger's first program is copied from this page."""
    program = PROGRAMS[name].replace("127.0.0.1:9092", cluster.bootstrap)

    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert (0, "b'en' b'hello'\n") == (run.returncode, run.stdout), run.stderr


def test_the_home_page_tests_an_application_with_a_cluster() -> None:
    """The block is a whole test: it starts and ends its own brokers."""
    program = PROGRAMS["In a test"] + "\n\ntest_my_application()\n"

    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert 0 == run.returncode, run.stderr


BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "page", ["produce", "consume", "transactions", "share-groups", "arrow", "asyncio", "administer"]
)
def test_a_pages_programs_run_one_after_another(page: str, cluster: Cluster) -> None:
    """A reader copies the blocks of a page from the first to the last."""
    blocks = BLOCK.findall((DOCS / "how-to" / f"{page}.md").read_text())
    assert blocks
    program = "\n".join(blocks).replace("127.0.0.1:9092", cluster.bootstrap)

    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=100
    )

    assert 0 == run.returncode, run.stderr


PRINTING = re.compile(r"^```python\n(.*?)^```\n\nIt prints:\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_programs_of_the_nats_page_print_what_the_page_says(tmp_path: Path) -> None:
    text = (DOCS / "how-to" / "use-nats.md").read_text()
    programs = PRINTING.findall(text)
    assert 2 == len(programs)
    with jetstream_broker(tmp_path / "data") as process:
        for program, expected in programs:
            code = program.replace("127.0.0.1:4222", f"127.0.0.1:{nats_port(process)}")
            run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
            assert (0, expected) == (run.returncode, run.stdout), run.stderr


TITLED = re.compile(r'^```python title="(?P<name>[^"]+)"\n(?P<code>.*?)^```$', re.MULTILINE | re.DOTALL)


def test_the_worker_of_its_page_processes_what_the_page_enqueues(cluster: Cluster, tmp_path: Path) -> None:
    for program in TITLED.finditer((DOCS / "how-to" / "workers.md").read_text()):
        (tmp_path / program["name"]).write_text(program["code"].replace("127.0.0.1:9092", cluster.bootstrap))
    enqueue = subprocess.run(
        [sys.executable, "enqueue.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert 0 == enqueue.returncode, enqueue.stderr
    with (
        subprocess.Popen([sys.executable, "tasks.py"], cwd=tmp_path) as worker,
        Consumer(
            "thumbnails-done",
            bootstrap_servers=cluster.bootstrap,
            auto_offset_reset="earliest",
            value_deserializer=serializers.json(),
        ) as consumer,
    ):
        done = {next(consumer).value["image"] for _ in range(100)}
        worker.terminate()
        assert 0 == worker.wait(60)
    assert {f"{number}.jpg" for number in range(100)} == done


@pytest.mark.parametrize(
    ("page", "command"),
    [
        ("celery", ["celery", "-A", "tasks", "worker", "--concurrency", "2", "--loglevel", "INFO"]),
        ("taskiq", ["taskiq", "worker", "tasks:broker", "--workers", "1"]),
    ],
)
def test_the_tasks_of_a_task_queues_page_run(
    page: str, command: list[str], cluster: Cluster, tmp_path: Path
) -> None:
    text = (DOCS / "how-to" / f"{page}.md").read_text()
    assert " ".join(command[:4]) in text
    for program in TITLED.finditer(text):
        (tmp_path / program["name"]).write_text(program["code"].replace("127.0.0.1:9092", cluster.bootstrap))
    enqueue = subprocess.run(
        [sys.executable, "enqueue.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert 0 == enqueue.returncode, enqueue.stderr
    expected = {f"resized {number}.jpg" for number in range(10)} | {"resized later.jpg"}
    if page == "celery":
        expected.add("resized broken.jpg")
    with subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as worker:
        try:
            assert worker.stdout is not None
            for line in worker.stdout:
                print(line, end="")
                expected = {each for each in expected if each not in line}
                if not expected:
                    break
        finally:
            os.killpg(worker.pid, signal.SIGKILL)
    assert not expected


STEP = re.compile(r"^```(?P<language>sh|python|text)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("page", "directory"),
    [
        ("README.md", "/tmp/kalda"),
        ("docs/tutorial/first-topic.md", "/tmp/first"),
        ("docs/tutorial/old-documents.md", "/tmp/old"),
    ],
)
def test_a_first_pages_commands_and_programs_print_what_the_page_says(
    page: str, directory: str, tmp_path: Path
) -> None:
    """A new user copies these pages block by block; a block `text` is the output of the one before it.

    Not run are the first block, which installs and starts Kalda, `make`, and what needs Spark.
    """
    first, *steps = STEP.finditer((REPOSITORY / page).read_text())
    assert f"kalda start --dir {directory} --port 9092" in first["code"]
    printed, compared = "", 0
    with KaldaProcess(tmp_path / "data") as broker:
        for step in steps:
            code = step["code"].replace("127.0.0.1:9092", broker.bootstrap)
            code = code.replace("127.0.0.1:2181", broker.zookeeper)
            code = code.replace('"127.0.0.1", 9092', f'"127.0.0.1", {broker.bootstrap.rpartition(":")[2]}')
            code = code.replace(directory, str(broker.directory))
            if step["language"] == "text":
                assert code == printed
                compared += 1
            elif not any(word in code for word in ("pyspark", "kalda pipeline", "make ")):
                printed = output_of(step["language"], code, broker.bootstrap)
    assert compared > 0


def test_the_statements_of_the_page_about_sql_print_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed, compared = "", 0
    with KaldaProcess(tmp_path / "data") as broker:
        for step in STEP.finditer((DOCS / "how-to" / "sql.md").read_text()):
            if step["language"] == "text":
                # What stands before a statement's rows is of another command of the block.
                assert printed.endswith(step["code"])
                compared += 1
            else:
                printed = output_of(step["language"], step["code"], broker.bootstrap)
    assert 2 == compared
    assert {"flights.arrow", "flights.parquet"} <= {each.name for each in tmp_path.iterdir()}


def output_of(language: str, code: str, bootstrap: str) -> str:
    """Run one block, and return what it printed to stdout."""
    command = {"sh": ["bash", "-euo", "pipefail"], "python": [sys.executable, "-W", "error"]}[language]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "KALDA_BOOTSTRAP_SERVER": bootstrap, "LC_ALL": "C.UTF-8"}

    run = subprocess.run([*command, "-c", code], capture_output=True, text=True, timeout=60, env=environment)

    assert 0 == run.returncode, f"{code}\n{run.stderr}"
    return run.stdout
