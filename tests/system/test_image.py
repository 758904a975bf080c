"""The image of contrib/docker: what its build stage does, without Docker."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "contrib/docker/Dockerfile"


def copied_files() -> list[str]:
    """Return the sources that the build stage copies from the checkout."""
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE.read_text(), re.MULTILINE)
    return " ".join(copies).split()


def test_the_build_context_has_what_the_dockerfile_copies() -> None:
    lines = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text().splitlines()

    assert sorted(copied_files()) == sorted(line[1:] for line in lines if line.startswith("!"))
    assert "*" == lines[0]


@pytest.mark.skipif(shutil.which("cc") is None, reason="the extensions need a C compiler")
@pytest.mark.timeout(660)
def test_the_copied_files_make_a_compiled_wheel(tmp_path: Path) -> None:
    """The build stage ends with an error where an extension cannot be compiled."""
    source = tmp_path / "source"
    source.mkdir()
    leave_out = shutil.ignore_patterns("__pycache__", "*.so")
    for name in copied_files():
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=leave_out)
        else:
            shutil.copy2(ROOT / name, source)
    variables = dict(re.findall(r"^ENV (KALDA_\w+)=(\S+)$", DOCKERFILE.read_text(), re.MULTILINE))
    assert {"KALDA_REQUIRE_EXTENSION": "1"} == variables
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KALDA_")}

    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--no-deps",
            "--no-build-isolation",
            "--wheel-dir",
            "wheels",
            ".",
        ],
        cwd=source,
        env={**environment, **variables},
        check=True,
        stdout=subprocess.PIPE,
        timeout=600,
    )

    (wheel,) = source.glob("wheels/kalda-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert 2 == sum(name.endswith((".so", ".pyd")) for name in names), names
    assert "kalda/py.typed" in names
