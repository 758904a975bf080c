"""The order of the import path in Python processes that Spark starts."""

import subprocess
import sys
from pathlib import Path

from kalda.spark import startup
from kalda.spark.startup.sitecustomize import COLLECTION_THRESHOLD, SOURCE_MODULE, reorder

ARCHIVE = "/v/site-packages/pyspark/python/lib/pyspark.zip"
PY4J = "/v/site-packages/pyspark/python/lib/py4j-src.zip"


def test_archives_of_the_installed_pyspark_move_behind_it() -> None:
    """Python keeps no bytecode of modules in an archive."""
    assert ["", "/v/site-packages", ARCHIVE, PY4J] == reorder(["", ARCHIVE, PY4J, "/v/site-packages"])


def test_archives_of_another_spark_stay_in_front() -> None:
    """The installed pyspark may have another version than the Spark that started the process."""
    path = ["", "/opt/spark/python/lib/pyspark.zip", ARCHIVE, "/usr/lib/site-packages"]
    assert path == reorder(path)


def test_the_environments_own_sitecustomize_still_runs(tmp_path: Path) -> None:
    """A process started with the directory runs both; the directory is not left on the path."""
    (tmp_path / "sitecustomize.py").write_text("print('other')")
    ours = str(Path(startup.__file__).parent)
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import gc, sys; print(sys.argv[1] in sys.path, gc.isenabled(), gc.get_threshold()[0])",
            ours,
        ],
        env={"PYTHONPATH": f"{ours}:{tmp_path}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert ["other", f"False True {COLLECTION_THRESHOLD}"] == done.stdout.splitlines()


def test_only_the_source_of_a_stream_has_no_threads_of_linear_algebra(tmp_path: Path) -> None:
    """Workers run functions of users, which may multiply matrices."""
    *packages, name = SOURCE_MODULE.split(".")
    directory = tmp_path.joinpath(*packages)
    directory.mkdir(parents=True)
    for package in (directory, *directory.parents[: len(packages) - 1]):
        (package / "__init__.py").touch()
    for each in (name, "other"):
        (directory / f"{each}.py").write_text("import os; print(os.environ.get('OPENBLAS_NUM_THREADS'))")

    def output_of(module: str) -> str:
        environment = {"PYTHONPATH": f"{Path(startup.__file__).parent}:{tmp_path}"}
        command = [sys.executable, "-m", module]
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=30
        )
        return done.stdout.strip()

    assert "1" == output_of(SOURCE_MODULE)
    assert "None" == output_of(".".join([*packages, "other"]))
