"""Shortens the start of the Python processes that Spark starts.

They import the installed pyspark instead of Spark's archive of it, and collect no garbage meanwhile. The
source of a stream is forked from the process of `source_server` where there is one, and imports nothing.

Spark puts `pyspark.zip` in front of `sys.path`. Python keeps no bytecode for modules in an archive, so each
new process compiles pyspark: 0.4 s before the source of a stream answers. Python's `site` imports this module
at the start of a process whose `PYTHONPATH` has its directory, and the archive moves behind the installed
package.

The archive moves only if it is part of a pyspark package that is itself on the path, because another
installation can have another version. A `sitecustomize` of the environment still runs.
"""

import gc
import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import PurePath
from types import ModuleType

COLLECTION_THRESHOLD = 100_000
"""Objects between two collections of garbage. The imports of a data source create 90,000 that live as long as
the process; at the usual 700, collections between them take a sixth of the start."""

SOURCE_MODULE = "pyspark.sql.streaming.python_streaming_source_runner"
"""What Spark runs with ``-m`` in the process of a stream's source."""


def spare_threads(arguments: list[str]) -> None:
    """Let OpenBLAS, which numpy loads, start no threads in the source of a stream, which does not use it.

    That takes a fifth of the time of the source's imports. Workers run functions of users, which may use it.
    """
    if SOURCE_MODULE in arguments:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def reorder(path: list[str]) -> list[str]:
    """Return `path` with the archives of an importable pyspark package at its end.

    Example: of ``["/v/pyspark/python/lib/pyspark.zip", "/v"]``, ``/v`` comes first.
    """
    archives = [entry for entry in path if _is_archive_of(entry, path)]
    return [entry for entry in path if entry not in archives] + archives


def _is_archive_of(entry: str, path: list[str]) -> bool:
    parts = PurePath(entry).parts
    if parts[-4:-1] != ("pyspark", "python", "lib") or not entry.endswith(".zip"):
        return False
    return str(PurePath(*parts[:-4])) in path


def source_server(directory: str) -> ModuleType | None:
    """Return the module `source_server` in a process that is the source of a stream, where it is possible."""
    if SOURCE_MODULE not in sys.orig_argv:
        return None
    name = "kalda.spark.startup.source_server"
    spec = spec_from_file_location(name, str(PurePath(directory, "source_server.py")))
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module if module.is_possible() else None


def _run_other(path: list[str]) -> None:
    """Run the `sitecustomize` that this one hides, if there is one."""
    spec = PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


if __name__ == "sitecustomize":
    _here = str(PurePath(__file__).parent)
    gc.set_threshold(COLLECTION_THRESHOLD)
    spare_threads(sys.orig_argv)
    sys.path[:] = reorder([entry for entry in sys.path if entry != _here])
    _server = source_server(_here)
    if _server is not None:
        _parent = os.getppid()
        _address = _server.address(_parent)
        _server.run_in_fork(_address)
    _run_other(sys.path)
    if _server is not None:
        _server.preload_and_serve(_address, _parent)
