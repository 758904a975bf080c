"""Which tests run on the same worker of pytest-xdist, because they share something that is slow to start.

A group is one unit of work: large enough that few of them start the same cluster, small enough that no worker
is left with a long one when the others are done.
"""

import re
from typing import Final

SPARK: Final = "tests/spark/"
"""All of these share one JVM, which opens connections whenever it likes."""
_COMPUTING: Final = ("tests/unit/", "tests/property/", "tests/golden/")
"""Most tests of these take some milliseconds, less than to hand one to a worker."""
_BEHAVIOUR: Final = "tests/behaviour/"
_ADMIN: Final = "tests/behaviour/admin/"
_FAULTS: Final = "tests/behaviour/test_faults.py::"
"""Each of these waits for some seconds until a cluster has recovered; one group of all takes minutes."""
_TARGET: Final = re.compile(r"\[((?:kalda|apache)-[0-9.]+)")


def worker_group(nodeid: str) -> str:
    """Return the group of a test: its module where tests are short, itself where it shares nothing.

    >>> worker_group("tests/behaviour/test_producer.py::test_acks[kalda-3-classic]")
    'tests/behaviour/test_producer.py[kalda-3]'
    >>> worker_group("tests/behaviour/test_faults.py::test_a_group[kalda-1-classic-cut]")
    'tests/behaviour/test_faults.py::test_a_group[kalda-1]'
    """
    if nodeid.startswith(SPARK):
        return SPARK
    if nodeid.startswith(_COMPUTING):
        return nodeid.partition("::")[0]
    if not nodeid.startswith(_BEHAVIOUR):
        return nodeid
    if nodeid.startswith(_ADMIN):
        group = _ADMIN
    elif nodeid.startswith(_FAULTS):
        group = nodeid.partition("[")[0]
    else:
        group = nodeid.partition("::")[0]
    target = _TARGET.search(nodeid)
    return f"{group}[{target[1]}]" if target else group
