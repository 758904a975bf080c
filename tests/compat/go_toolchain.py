"""Builds Go programs: those of this folder, franz-go's own tests, and peers' commands.

Modules and builds come from Go's caches the second time.
"""

import os
import shutil
import subprocess
from pathlib import Path

from benchmarks.apache_kafka import CACHE_DIRECTORY, NotAvailableError, last_line

_SOURCE = Path(__file__).parent / "go"
_CHART_SOURCE = Path(__file__).parent / "chart"
"""A module of its own: Helm's and Kubernetes' modules take minutes to build, and clients do not need them."""
_NATS_SOURCE = Path(__file__).parent / "nats_cli"
_CONFLUENT_SOURCE = Path(__file__).parent / "go_confluent"
"""A module of its own: confluent-kafka-go is built with a C compiler."""
_BUILD_SECONDS = 900
"""The first build takes minutes on a small machine."""
KGO_PACKAGE = "github.com/twmb/franz-go/pkg/kgo"


def go_programs() -> Path:
    """Return a directory with the programs of `tests/compat/go`, each under its folder's name.

    Raises:
        NotAvailableError: there is no Go, or the modules cannot be fetched.
    """
    built = _built()
    done = _go("build", "-o", f"{built}/", "./...")
    assert 0 == done.returncode, done.stderr
    return built


def kgo_tests() -> Path:
    """Return franz-go's tests of its client, in the release that `go.mod` names, as a program.

    Raises:
        NotAvailableError: there is no Go, or the modules cannot be fetched.
    """
    program = _built() / "kgo.test"
    done = _go("test", "-c", "-o", str(program), KGO_PACKAGE)
    assert 0 == done.returncode, done.stderr
    return program


def chart_program() -> Path:
    """Return the program of `tests/compat/chart`.

    Raises:
        NotAvailableError: there is no Go, or the modules cannot be fetched.
    """
    program = _built(_CHART_SOURCE) / "chart"
    done = _go("build", "-o", str(program), ".", source=_CHART_SOURCE)
    assert 0 == done.returncode, done.stderr
    return program


def nats_command() -> Path:
    """Return the ``nats`` command.

    Raises:
        NotAvailableError: there is no Go, or the modules cannot be fetched.
    """
    program = _built(_NATS_SOURCE) / "nats"
    done = _go("build", "-o", str(program), "github.com/nats-io/natscli/nats", source=_NATS_SOURCE)
    assert 0 == done.returncode, done.stderr
    return program


def confluent_program() -> Path:
    """Return the program of `tests/compat/go_confluent`.

    Raises:
        NotAvailableError: there is no Go or no C compiler, or the modules cannot be fetched.
    """
    if shutil.which("cc") is None:
        raise NotAvailableError("confluent-kafka-go needs a C compiler and there is no 'cc' on the PATH")
    program = _built(_CONFLUENT_SOURCE) / "confluent"
    done = _go("build", "-o", str(program), ".", source=_CONFLUENT_SOURCE, with_c=True)
    assert 0 == done.returncode, done.stderr
    return program


def etcd_programs(version: str) -> Path:
    """Return a directory with ``etcd`` and ``etcdctl`` of a version such as ``3.7.3``.

    Raises:
        NotAvailableError: there is no Go, or the modules cannot be fetched.
    """
    directory = _directory() / f"etcd-{version}"
    directory.mkdir(exist_ok=True)
    modules = {"etcd": "go.etcd.io/etcd/server/v3", "etcdctl": "go.etcd.io/etcd/etcdctl/v3"}
    # A module without a package: it only names what the build takes.
    (directory / "go.mod").write_text("module kalda.test/etcd\n\ngo 1.26.0\n")
    done = _go("get", *(f"{module}@v{version}" for module in modules.values()), source=directory)
    if done.returncode != 0:
        raise NotAvailableError(f"etcd {version} could not be fetched: {last_line(done.stderr)}")
    for name, module in modules.items():
        done = _go("build", "-o", name, module, source=directory)
        assert 0 == done.returncode, done.stderr
    return directory


def _built(source: Path = _SOURCE) -> Path:
    built = _directory()
    done = _go("mod", "download", source=source)
    if done.returncode != 0:
        raise NotAvailableError(f"the Go modules could not be fetched: {last_line(done.stderr)}")
    return built


def _directory() -> Path:
    if shutil.which("go") is None:
        raise NotAvailableError("programs in Go need 'go' 1.26 or newer and there is none on the PATH")
    built = CACHE_DIRECTORY / "compat-go"
    built.mkdir(parents=True, exist_ok=True)
    return built


def _go(*arguments: str, source: Path = _SOURCE, with_c: bool = False) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["go", *arguments],
        cwd=source,
        env={**os.environ, "CGO_ENABLED": str(int(with_c))},
        capture_output=True,
        text=True,
        timeout=_BUILD_SECONDS,
        check=False,
    )
