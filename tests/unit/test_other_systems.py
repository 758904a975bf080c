"""No import needs what only Linux has.

Developers write and test on macOS and Windows what runs on Linux later. The tests hide names of the standard
library; they do not replace a run on those systems.
"""

from pathlib import Path

import pytest

from tests import core_only
from tests.other_systems import run_as_on

IMPORT_ALL = """
import importlib, pkgutil, sys, kalda

sys.modules["trio"] = None  # an option of httpcore; it asks for the name of the system, which stays Linux
left_out = tuple(sys.argv[2].split(","))
for package in sys.argv[1].split(","):
    found = importlib.import_module(package)
    for module in pkgutil.walk_packages(getattr(found, "__path__", []), package + "."):
        if module.name.startswith(left_out):
            continue
        try:
            importlib.import_module(module.name)
        except Exception as error:
            print(f"{module.name}: {error!r}")
"""
pytestmark = pytest.mark.skipif(core_only.IS_CORE_ONLY, reason="every module is imported, of extras too")

OF_CLIENTS_AND_TOOLS = [
    f"kalda.{name}"
    for name in [
        "cli",
        "clients",
        "common",
        "formats",
        "net.client",
        "protocol",
        "records",
        "tools",
        "cluster",
        "zookeeper.client",
    ]
]
WITH_SPARK = "kalda.spark,kalda.pipelines,kalda.__main__"


@pytest.mark.parametrize(
    ("system", "packages"),
    [
        ("macos", ["kalda"]),
        ("windows", OF_CLIENTS_AND_TOOLS),
    ],
)
def test_modules_are_imported_without_what_only_linux_has(system: str, packages: list[str]) -> None:
    ended = run_as_on(system, IMPORT_ALL, ",".join(packages), WITH_SPARK)

    assert ("", "", 0) == (ended.stdout, ended.stderr, ended.returncode)


def test_loops_of_clients_watch_sockets_where_there_is_no_epoll() -> None:
    """The default loop of asyncio on Windows does not."""
    program = """
import asyncio, socket
from kalda.runtime.network import readers_of
from kalda.runtime.system.event_loop import new_event_loop

loop = new_event_loop()
assert isinstance(loop, asyncio.SelectorEventLoop), loop
ours, theirs = socket.socketpair()
ours.setblocking(False)
readers_of(loop).add_reader(ours.fileno(), loop.stop)
theirs.send(b"x")
loop.run_forever()
loop.close()
ours.close()
theirs.close()
"""
    ended = run_as_on("windows", program)

    assert ("", 0) == (ended.stderr, ended.returncode)


def test_files_are_synced_where_there_is_no_fdatasync(tmp_path: Path) -> None:
    program = """
import sys
from kalda.runtime.system.filesystem import OsFileSystem

file = OsFileSystem().open(sys.argv[1], create=True)
file.write_at(b"synced", 0)
file.sync()
"""
    ended = run_as_on("macos", program, str(tmp_path / "file"))

    assert ("", 0) == (ended.stderr, ended.returncode)
