"""The release before this one, taken from the history of the repository, to run beside the present sources.

It is the last tag below HEAD, or `FIRST` while there is none. Only its sources are used: the programs run on
the interpreter and packages of these tests, and its compiled modules as plain Python.
"""

import functools
import subprocess
import sys
from pathlib import Path
from typing import Final

FIRST: Final = "8241237e"
"""The commit that upgrades start from until the first tag."""

ROOT: Final = Path(__file__).resolve().parent.parent


class NoPreviousReleaseError(Exception):
    """The sources of the release before are not here; the message says why, and how to get them."""


@functools.cache
def previous_commit() -> str:
    """Return the tag or commit of the release before.

    Raises:
        NoPreviousReleaseError: it is not in the history here.
    """
    described = _git("describe", "--tags", "--match", "v[0-9]*", "--abbrev=0", "HEAD^")
    commit = described.stdout.decode().strip() if described.returncode == 0 else FIRST
    if _git("cat-file", "-e", f"{commit}^{{commit}}").returncode != 0:
        raise NoPreviousReleaseError(
            f"the release before, {commit}, is not in the history of {ROOT}: in a shallow clone "
            "`git fetch --unshallow --tags` gets it, outside of a clone nothing does"
        )
    return commit


def previous_command(directory: Path) -> list[str]:
    """Write the sources of the release before below `directory`; return what runs its `kalda`.

    Raises:
        NoPreviousReleaseError: they are not in the history here.
    """
    sources = directory / "src"
    if not sources.is_dir():
        archive = _git("archive", "--format=tar", previous_commit(), "src")
        assert 0 == archive.returncode, archive.stderr.decode()
        directory.mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "-x", "-C", str(directory)], input=archive.stdout, check=True)
    # In front of the present sources, which the environment of the tests has on its path.
    return ["env", f"PYTHONPATH={sources}", sys.executable, "-m", "kalda"]


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=False)
    except FileNotFoundError:
        raise NoPreviousReleaseError("there is no git, which has the sources of the release before") from None
