"""Python modules beside a pipeline file, on the driver and on executors."""

import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kalda.pipelines.engine.user_modules import add_directory, ship_modules
from kalda.pipelines.spec.model import PipelineFile
from kalda.pipelines.spec.parser import parse_pipeline_file

FILE = """
name: shop
storage: state
pipelines:
  - name: a
    from: {topic: t}
    transform: [{python: "steps:mark"}, {python: "package.inner:mark"}, {python: "json:loads"}]
    to: {table: u}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PipelineFile:
    """A file with the module `steps` and the package `package` beside it; `json` is Python's own."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "steps.py").write_text("")
    for name in ("package/__init__.py", "package/inner.py", "package/deep/__init__.py", "package/data.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    return parse_pipeline_file(FILE, str(tmp_path / "p.yml"), directory=tmp_path, variables={})


def test_the_directory_of_the_file_comes_first_and_once(file: PipelineFile, tmp_path: Path) -> None:
    add_directory(file)
    add_directory(file)
    assert str(tmp_path) == sys.path[0]
    assert 1 == sys.path.count(str(tmp_path))


def test_without_modules_beside_the_file_nothing_is_added(file: PipelineFile, tmp_path: Path) -> None:
    """A directory of other Python files would hide installed modules."""
    (tmp_path / "steps.py").unlink()
    (tmp_path / "package/__init__.py").unlink()
    add_directory(file)
    assert str(tmp_path) not in sys.path


def test_executors_get_modules_as_files_and_packages_as_archives(file: PipelineFile, tmp_path: Path) -> None:
    shipped: list[str] = []
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(addPyFile=shipped.append))
    ship_modules(session, file, file.pipelines)
    archive, module = sorted(shipped, key=lambda path: path.endswith(".py"))
    assert str(tmp_path / "steps.py") == module
    with zipfile.ZipFile(archive) as found:
        names = found.namelist()
    assert ["package/__init__.py", "package/deep/__init__.py", "package/inner.py"] == sorted(names)
