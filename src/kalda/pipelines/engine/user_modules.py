"""Makes Python modules beside a pipeline file importable, on the driver and on executors.

`python: steps:enrich` finds ``steps.py`` or the package ``steps`` in the directory of the file. Modules that
are installed need none of this. A module beside the file wins over an installed one of the same name.
"""

import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kalda.pipelines.spec.model import PipelineFile, PipelineSpec, PythonStep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def add_directory(file: PipelineFile) -> None:
    """Let this process import modules beside the file."""
    directory = str(Path(file.path).resolve().parent)
    if _local_modules(file, file.pipelines) and directory not in sys.path:
        sys.path.insert(0, directory)


def ship_modules(session: "SparkSession", file: PipelineFile, specs: Sequence[PipelineSpec]) -> None:
    """Send the modules that steps name to the executors."""
    add_directory(file)
    for path in _local_modules(file, specs):
        if path.is_file():
            session.sparkContext.addPyFile(str(path))
            continue
        archive = Path(tempfile.mkdtemp(prefix="kalda-steps-")) / f"{path.name}.zip"
        with zipfile.ZipFile(archive, "w") as written:
            for each in sorted(path.rglob("*.py")):
                written.write(each, each.relative_to(path.parent))
        session.sparkContext.addPyFile(str(archive))


def _local_modules(file: PipelineFile, specs: Sequence[PipelineSpec]) -> list[Path]:
    directory = Path(file.path).resolve().parent
    names = {
        step.function.partition(":")[0].partition(".")[0]
        for spec in specs
        for step in spec.transform
        if isinstance(step, PythonStep)
    }
    found = []
    for name in sorted(names):
        module, package = directory / f"{name}.py", directory / name
        if module.is_file():
            found.append(module)
        elif (package / "__init__.py").is_file():
            found.append(package)
    return found
