"""The Debian package, built from a wheel of this checkout; needs Debian's Python and the package index."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kalda
from kalda import Consumer, Producer
from kalda.testing import KaldaProcess

ROOT = Path(__file__).parents[2]
PYTHON = Path("/usr/bin/python3")
CONFFILE = "etc/kalda/server.properties"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, of a wheel without compiled modules and with little compression, to be quick."""
    if shutil.which("dpkg-deb") is None or not PYTHON.exists():
        pytest.skip("the package needs 'dpkg-deb' and Debian's /usr/bin/python3")
    if subprocess.run(
        [PYTHON, "-c", "import sys, venv; assert sys.version_info >= (3, 11)"], check=False
    ).returncode:
        pytest.skip("the package needs Debian's python3-venv, 3.11 or newer")
    directory = tmp_path_factory.mktemp("debian")
    pip = [sys.executable, "-m", "pip"]
    subprocess.run(
        [*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", directory, "."],
        cwd=ROOT,
        env={**os.environ, "KALDA_PURE_PYTHON": "1"},
        check=True,
        timeout=600,
    )
    (wheel,) = directory.glob("kalda-*.whl")
    done = subprocess.run(
        [ROOT / "contrib/debian/build.sh", wheel, directory],
        env={
            **os.environ,
            "PIP": " ".join(pip),
            "DPKG_DEB_COMPRESSOR_TYPE": "gzip",
            "DPKG_DEB_COMPRESSOR_LEVEL": "1",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    if "No matching distribution" in done.stderr or "Could not find a version" in done.stderr:
        pytest.skip(f"the dependencies could not be fetched: {done.stderr.splitlines()[-1]}")
    assert 0 == done.returncode, done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def unpacked(package: Path) -> Iterator[Path]:
    """The root directory of the package, with its scripts in DEBIAN."""
    directory = package.parent / "unpacked"
    subprocess.run(["dpkg-deb", "--raw-extract", package, directory], check=True)
    yield directory
    shutil.rmtree(directory)


def test_the_control_file_has_the_version_and_the_interpreter_that_the_modules_fit(
    package: Path, unpacked: Path
) -> None:
    fields = subprocess.run(
        ["dpkg-deb", "--field", package, "Version", "Depends"], capture_output=True, text=True, check=True
    ).stdout
    (modules,) = (unpacked / "opt/kalda/lib").iterdir()

    assert f"Version: {kalda.__version__}\n" in fields
    assert modules.name in fields.partition("Depends: ")[2].strip().split(", ")


def test_only_root_owns_the_files_and_nothing_is_writable_by_others(package: Path) -> None:
    listing = subprocess.run(
        ["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    modes = {line.split(maxsplit=5)[5]: line.split(maxsplit=2)[:2] for line in listing}

    assert {"root/root"} == {owner for _, owner in modes.values()}
    assert [] == [name for name, (mode, _) in modes.items() if mode[0] != "l" and "w" in mode[5] + mode[8]]
    assert [] == [name for name, (mode, _) in modes.items() if "s" in mode.lower()[1:]]
    assert "-rwxr-xr-x" == modes["./opt/kalda/bin/kalda"][0]
    assert "./usr/bin/kalda -> /opt/kalda/bin/kalda" in modes
    assert "./usr/lib/systemd/system/kalda.service" in modes


def test_dpkg_asks_before_it_replaces_changed_settings(unpacked: Path) -> None:
    assert f"/{CONFFILE}\n" == (unpacked / "DEBIAN/conffiles").read_text()
    assert (unpacked / CONFFILE).is_file()


def test_no_file_names_the_directory_of_the_build(unpacked: Path) -> None:
    """A script whose first line names it would not start where the package is installed."""
    for script in (unpacked / "opt/kalda/bin").iterdir():
        if not script.is_symlink():
            assert "#!/opt/kalda/bin/python" == script.read_text().splitlines()[0]
    assert (
        "home = /usr/bin\ninclude-system-site-packages = false\n"
        == (unpacked / "opt/kalda/pyvenv.cfg").read_text()
    )
    assert [] == [*unpacked.rglob("direct_url.json"), *unpacked.rglob("RECORD")]


def test_every_module_is_compiled_for_any_modification_time(unpacked: Path) -> None:
    """The service may not write below /opt, and would compile every module at every start."""
    for source in (unpacked / "opt/kalda/lib").rglob("*.py"):
        compiled = list(source.parent.glob(f"__pycache__/{source.stem}.cpython-*.pyc"))
        assert 1 == len(compiled), source
        assert 1 == int.from_bytes(compiled[0].read_bytes()[4:8], "little"), source


def test_a_broker_of_the_package_serves_a_client(unpacked: Path, tmp_path: Path) -> None:
    """The dependencies are complete: the package's Python does not see those of the tests."""
    command = [str(unpacked / "opt/kalda/bin/python"), "-I", "-m", "kalda"]
    with KaldaProcess(tmp_path / "broker", command=command) as broker:
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            producer.send("flights", value=b"AA100").result(30)
        with Consumer(
            "flights", bootstrap_servers=broker.bootstrap, group_id="readers", auto_offset_reset="earliest"
        ) as consumer:
            assert b"AA100" == next(iter(consumer)).value
