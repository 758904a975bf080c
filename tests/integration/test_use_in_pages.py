"""The programs of the pages "Use it in …" run as a reader runs them, with the page's server, pool or kernel.

A block with a title is a file of the page's program. Servers get a socket that listens already, so no test
polls for a server that starts.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from kalda import Admin, Consumer, ConsumerRecord, Producer, serializers
from tests.shared_broker import shared_broker

PAGES = Path(__file__).parents[2] / "docs/how-to"
FILE = re.compile(r'^```python title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CELL = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WAIT_SECONDS = 90
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=."]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with shared_broker(tmp_path_factory.mktemp("broker")) as bootstrap:
        yield bootstrap


class Page:
    """The files and commands of a page, in a directory of their own."""

    def __init__(self, name: str, directory: Path, bootstrap: str) -> None:
        text = (PAGES / f"use-in-{name}.md").read_text()
        self.directory = directory
        self._commands = [line for block in COMMAND.findall(text) for line in block.splitlines()]
        for path, code in FILE.findall(text):
            file = directory / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(code.replace("127.0.0.1:9092", bootstrap))

    def replace(self, path: str, old: str, new: str) -> None:
        """Point a file of the page at something else than a reader's machine has."""
        text = (self.directory / path).read_text()
        assert old in text
        (self.directory / path).write_text(text.replace(old, new))

    def command(self, program: str) -> list[str]:
        """Return the page's command that starts with `program`, with the programs of this interpreter."""
        first, *words = next(line for line in self._commands if line.startswith(program)).split()
        name = {"python": Path(sys.executable).name}.get(first, first)
        return [str(Path(sys.executable).parent / name), *words]

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": str(self.directory),
            "PYTHONUNBUFFERED": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }

    def run(self, *command: str) -> str:
        """Run a command to its end, and return what it printed."""
        run = subprocess.run(
            command,
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WAIT_SECONDS,
        )
        assert 0 == run.returncode, run.stdout
        return run.stdout

    @contextmanager
    def running(
        self, *command: str, descriptors: tuple[int, ...] = (), exit_code: int = 0
    ) -> Iterator["subprocess.Popen[bytes]"]:
        """Run a command for the block, then stop it by SIGTERM; it has to end with `exit_code`."""
        log = self.directory / f"{len(list(self.directory.glob('*.log')))}.log"
        with (
            log.open("ab") as output,
            subprocess.Popen(
                command,
                cwd=self.directory,
                env=self.environment,
                stdout=output,
                stderr=output,
                pass_fds=descriptors,
            ) as process,
        ):
            try:
                yield process
                process.send_signal(signal.SIGTERM)
                assert exit_code == process.wait(WAIT_SECONDS)
            except BaseException:
                print(log.read_text())
                raise
            finally:
                process.kill()


@contextmanager
def listening() -> Iterator[tuple[int, str]]:
    """Yield the descriptor of a socket that listens, and its address for HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.fileno(), f"http://127.0.0.1:{server.getsockname()[1]}"


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def first_records(bootstrap: str, topic: str, count: int) -> list[ConsumerRecord[bytes | None, Any]]:
    found: list[ConsumerRecord[bytes | None, Any]] = []
    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        value_deserializer=serializers.json(),
    ) as consumer:
        deadline = time.monotonic() + WAIT_SECONDS
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} records are in {topic}"
            found += consumer.poll(timeout_s=1.0)
    return found


def committed(bootstrap: str, group: str, topic: str) -> int:
    with Admin(bootstrap_servers=bootstrap) as admin:
        offsets = admin.list_consumer_group_offsets([group])[group]
    return sum(found.offset for partition, found in offsets.items() if found and partition.topic == topic)


def produce(bootstrap: str, topic: str, value: dict[str, object]) -> None:
    with Producer(bootstrap_servers=bootstrap, value_serializer=serializers.json()) as producer:
        producer.send(topic, key=b"alice", value=value).result(30)


ORDER = {"customer": "alice", "amount": 10}


def test_fastapi_serves_orders_and_counts_them(broker: str, tmp_path: Path) -> None:
    """The producer and the consumer live in the lifespan: SIGTERM commits and closes both."""
    page = Page("fastapi", tmp_path, broker)

    with listening() as (descriptor, url):
        command = [*page.command("uvicorn"), "--fd", str(descriptor)]
        # Uvicorn ends itself by the signal when it has shut down.
        with page.running(*command, descriptors=(descriptor,), exit_code=-signal.SIGTERM):
            answer = requests.post(f"{url}/orders", json=ORDER, timeout=WAIT_SECONDS)
            assert (201, {"partition": 0, "offset": 0}) == (answer.status_code, answer.json())
            wait_until(lambda: 10 == requests.get(f"{url}/totals/alice", timeout=WAIT_SECONDS).json())
            assert 200 == requests.get(f"{url}/health", timeout=WAIT_SECONDS).status_code

    assert 1 == committed(broker, "shop-totals", "shop-orders")


@pytest.mark.parametrize("workers", ["gthread", "gevent"])
def test_flask_serves_orders_from_forked_workers(workers: str, broker: str, tmp_path: Path) -> None:
    """With --preload the application is imported before the fork."""
    page = Page("flask", tmp_path, broker)
    page.replace("shop.py", "flask-orders", f"flask-orders-{workers}")
    # The first record of a busy machine takes its time.
    page.replace("shop.py", "max_block_ms=2_000", "max_block_ms=30_000")
    page.replace("shop.py", "delivery_timeout_ms=10_000", "delivery_timeout_ms=60_000")

    with listening() as (descriptor, url):
        command = [*page.command("gunicorn"), "--bind", f"fd://{descriptor}", "--no-control-socket"]
        command += ["--worker-class", workers, "--graceful-timeout", "5"]
        with page.running(*command, descriptors=(descriptor,)):
            answers = [requests.post(f"{url}/orders", json=ORDER, timeout=WAIT_SECONDS) for _ in range(10)]

    assert [201] * 10 == [answer.status_code for answer in answers]
    assert [ORDER] * 10 == [record.value for record in first_records(broker, f"flask-orders-{workers}", 10)]


DJANGO = {
    "manage.py": """
import os
import sys

from django.core.management import execute_from_command_line

os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
execute_from_command_line(sys.argv)
""",
    "project/settings.py": """
from pathlib import Path

from settings import KAFKA

SECRET_KEY = "test"
ALLOWED_HOSTS = ["127.0.0.1"]
INSTALLED_APPS = ["shop"]
ROOT_URLCONF = "project.urls"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": Path(__file__).with_name("db"),
                         "OPTIONS": {"timeout": 60}}}
""",
    "project/urls.py": """
from django.db import transaction
from django.http import HttpResponse
from django.urls import path
from shop.models import Order


def place(request, is_kept):
    with transaction.atomic():
        order = Order.objects.create(customer="alice", amount=10)
        transaction.set_rollback(not is_kept)
    return HttpResponse(order.pk, status=201)


urlpatterns = [path("kept", place, {"is_kept": True}), path("lost", place, {"is_kept": False})]
""",
    "project/wsgi.py": """
import os

from django.core.wsgi import get_wsgi_application

os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
application = get_wsgi_application()
""",
}
"""What `django-admin startproject` makes of a reader's project, in short, and two views."""


def test_django_sends_committed_rows_and_a_command_consumes(broker: str, tmp_path: Path) -> None:
    """A row that is rolled back sends nothing, and the command ends well by SIGTERM."""
    page = Page("django", tmp_path, broker)
    for path, code in DJANGO.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(code)
    for package in ("project", "shop", "shop/management", "shop/management/commands"):
        (tmp_path / package / "__init__.py").touch()
    manage = [sys.executable, "manage.py"]
    page.run(*manage, "makemigrations", "shop")
    page.run(*manage, "migrate")
    assert "Ran 1 test" in page.run(*manage, "test", "--noinput")

    with listening() as (descriptor, url):
        command = [*page.command("gunicorn"), "--bind", f"fd://{descriptor}", "--no-control-socket"]
        with page.running(*command, descriptors=(descriptor,)):
            for view in ("lost", "kept", "lost", "kept"):
                assert 201 == requests.get(f"{url}/{view}", timeout=WAIT_SECONDS).status_code
    with page.running(*page.command("python manage.py pay_orders")):
        wait_until(lambda: 2 == committed(broker, "payments", "django-orders"))

    paid = page.run(
        *manage, "shell", "-v0", "-c", "print(list(Order.objects.values_list('customer', 'is_paid')))"
    )
    assert "[('alice', True), ('alice', True)]\n" == paid


def test_celery_tasks_send_from_pool_processes(broker: str, tmp_path: Path) -> None:
    """The consumer commits what it has handed over, and the tasks of both pool processes have producers."""
    page = Page("celery", tmp_path, broker)
    queue = str(tmp_path / "queue")
    Path(queue).mkdir()
    options = {
        "data_folder_in": queue,
        "data_folder_out": queue,
        "control_folder": str(tmp_path / "control"),
        "polling_interval": 0.05,
    }
    page.replace(
        "shop.py",
        'broker="redis://127.0.0.1:6379/0"',
        f'broker="filesystem://", broker_transport_options={options}',
    )
    for amount in range(10):
        produce(broker, "celery-orders", {"customer": "alice", "amount": amount})

    with page.running(*page.command("python hand_over.py")):
        with page.running(*page.command("celery")):
            invoices = first_records(broker, "celery-invoices", 10)
        wait_until(lambda: 10 == committed(broker, "invoicing", "celery-orders"))

    assert {amount * 1.2 for amount in range(10)} == {record.value["due"] for record in invoices}


def test_jupyter_runs_the_cells(tmp_path: Path) -> None:
    """The cells run in a kernel, whose event loop runs already."""
    cells = CELL.findall((PAGES / "use-in-jupyter.md").read_text())
    assert cells

    run = subprocess.run(
        [sys.executable, Path(__file__).with_name("notebook_run.py")],
        cwd=tmp_path,
        input=json.dumps(cells),
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
    )

    assert 0 == run.returncode, run.stderr
    assert "b'sensor-2'" in run.stdout
    assert "value=b'too warm'" in run.stdout


def test_an_asyncio_service_stops_in_good_order(broker: str, tmp_path: Path) -> None:
    """SIGTERM while it waits for records: it has committed what it answered, and exits with 0."""
    page = Page("asyncio-services", tmp_path, broker)
    produce(broker, "service-orders", ORDER)

    with page.running(*page.command("python")):
        (invoice,) = first_records(broker, "service-invoices", 1)

    assert (b"alice", {"customer": "alice", "due": 12.0}) == (invoice.key, invoice.value)
    assert 1 == committed(broker, "service", "service-orders")


@pytest.mark.parametrize("name", ["fastapi", "flask", "celery", "asyncio-services"])
def test_the_tests_of_a_page_pass(name: str, tmp_path: Path) -> None:
    """They start their own brokers."""
    page = Page(name, tmp_path, "127.0.0.1:1")

    assert "1 passed" in page.run(*PYTEST)
