"""Keeps copies of the directories that testing clusters leave behind, for programs that check them.

``KALDA_KEEP_DIRECTORIES=DIR`` makes each cluster whose members have ended copy the data of its brokers and of
its coordination server to a directory of its own below ``DIR``. `tests.compat.kept_directories` starts Apache
Kafka on the copies.
"""

import itertools
import os
import subprocess
from pathlib import Path
from typing import Final

VARIABLE: Final = "KALDA_KEEP_DIRECTORIES"
ORIGIN_FILE: Final = "origin"
"""The test that the data comes from, where pytest names it."""

_numbers: Final = itertools.count(1)


def keep(directory: Path) -> None:
    """Copy the data below a cluster's directory, if the environment asks for it.

    Raises:
        OSError, subprocess.CalledProcessError: it could not be copied.
    """
    target = os.environ.get(VARIABLE)
    if not target or not directory.is_dir():
        return
    found = [
        each
        for each in directory.iterdir()
        if (each / "meta.properties").exists() or each.name == "zookeeper"
    ]
    if not found:
        return
    copy = Path(target) / f"{os.getpid()}-{next(_numbers)}"
    copy.mkdir(parents=True)
    # GNU's: reserved parts of files take no space in the copy.
    subprocess.run(["cp", "-a", "--sparse=always", *map(str, found), str(copy)], check=True)
    (copy / ORIGIN_FILE).write_text(os.environ.get("PYTEST_CURRENT_TEST", ""))
