"""Compiles the package's extensions when a wheel is built or the package is installed in place.

Without a C compiler, Cython or Python's headers the package is built without the extensions and does the same
in plain Python: a failure to compile never fails an installation. With KALDA_REQUIRE_EXTENSION=1 it does, for
builds that publish wheels; with KALDA_PURE_PYTHON=1 nothing is compiled and the wheel fits every platform.

Either way the reason is printed and written to build/extension.txt, where `make install` reads it.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from sysconfig import get_config_var
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = (Path("src/kalda/protocol/fast/_requests.pyx"), Path("src/kalda/records/_records.pyx"))
REPORT = Path("build/extension.txt")


class CustomBuildHook(BuildHookInterface[Any]):
    """Adds the compiled modules to a wheel, or puts them beside their sources if it is installed in place."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; `version` is "editable" for an installation in place."""
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        if version == "editable":
            # Those that an earlier source was compiled to must not stay if this one cannot be compiled.
            for source in SOURCES:
                (root / source).with_suffix(str(get_config_var("EXT_SUFFIX"))).unlink(missing_ok=True)
        if os.environ.get("KALDA_PURE_PYTHON", "") not in ("", "0"):
            self._report(root, "left out: KALDA_PURE_PYTHON is set")
            return
        self._directory = tempfile.mkdtemp(prefix="kalda-build-")
        try:
            directory = Path(self._directory)
            extensions = {source: compile_extension(root, source, directory) for source in SOURCES}
        except (Exception, SystemExit) as error:  # setuptools ends the process for some faults of a compiler
            if os.environ.get("KALDA_REQUIRE_EXTENSION", "") not in ("", "0"):
                raise
            self._report(root, f"left out: {type(error).__name__}: {error}".splitlines()[0])
            return
        for source, extension in extensions.items():
            if version == "editable":
                shutil.copy2(extension, (root / source).parent)
            else:
                target = source.relative_to("src").with_name(extension.name)
                build_data["force_include"][str(extension)] = str(target)
                build_data["pure_python"] = False
                build_data["infer_tag"] = True
        self._report(root, f"built: {', '.join(each.name for each in extensions.values())}")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled; the wheel has its copy."""
        if directory := getattr(self, "_directory", None):
            shutil.rmtree(directory, ignore_errors=True)

    def _report(self, root: Path, outcome: str) -> None:
        self.app.display_info(f"extensions: {outcome}")
        report = root / REPORT
        report.parent.mkdir(exist_ok=True)
        report.write_text(f"{outcome}\n")


def compile_extension(root: Path, source: Path, directory: Path) -> Path:
    """Compile `source` in `directory`; return the extension. Raises what Cython and setuptools raise."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    flags = [] if sys.platform == "win32" else ["-O3", "-g0"]
    module = ".".join(source.relative_to("src").with_suffix("").parts)
    extension = Extension(module, [str(root / source)], extra_compile_args=flags)
    distribution = Distribution(
        {"ext_modules": cythonize([extension], build_dir=str(directory), quiet=True, language_level=3)}
    )
    command = build_ext(distribution)
    command.build_lib = str(directory / "lib")
    command.build_temp = str(directory / "objects")
    command.ensure_finalized()
    command.run()
    (output,) = command.get_outputs()
    return Path(output)
