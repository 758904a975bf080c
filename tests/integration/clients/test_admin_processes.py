"""An admin client at the end of its process, in a fork, and dropped without `close`."""

import subprocess
import sys
import time

import pytest

from kalda import Admin

PROGRAM = """
import logging, os, sys
from kalda import Admin
from kalda.clients.errors import IllegalStateError

# Development mode has asyncio warn of callbacks that took 0.1 s, as any does on a busy machine.
logging.getLogger("asyncio").setLevel(logging.ERROR)
admin = Admin(bootstrap_servers=sys.argv[1])
admin.list_topics()
"""

FORK = """
child = os.fork()
if not child:
    try:
        admin.list_topics()
    except IllegalStateError as error:
        print("cannot be used in its fork" in str(error), flush=True)
    admin.close()
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
admin.list_topics()
admin.close()
"""


def run(program: str, bootstrap: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", program, bootstrap],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_a_program_that_forgets_to_close_ends_at_once_and_silently(bootstrap: str) -> None:
    begin = time.monotonic()
    done = run(PROGRAM, bootstrap)

    assert ("", "", 0) == (done.stdout, done.stderr, done.returncode)
    assert time.monotonic() - begin < 25


def test_a_fork_refuses_use_and_leaves_the_parents_client_alone(bootstrap: str) -> None:
    done = run(PROGRAM + FORK, bootstrap)

    assert ("True\n0\n", "", 0) == (done.stdout, done.stderr, done.returncode)


@pytest.mark.filterwarnings("error")
def test_a_dropped_client_leaves_no_thread_and_no_socket(bootstrap: str) -> None:
    """`nothing_is_left_behind` checks it after each test."""
    admin = Admin(bootstrap_servers=bootstrap)
    admin.list_topics()
    del admin
