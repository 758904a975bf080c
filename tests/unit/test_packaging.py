"""The files of contrib that packages are made of; tests/compat builds the packages."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

import kalda

ROOT = Path(__file__).parents[2]
CONTRIB = ROOT / "contrib"
DEBIAN = CONTRIB / "debian"
UNIT = CONTRIB / "systemd/kalda.service"
CHART = CONTRIB / "helm/kalda"
SHELL_SCRIPTS = sorted(
    path for path in CONTRIB.rglob("*") if path.is_file() and path.read_bytes()[:9] == b"#!/bin/sh"
)


@pytest.mark.parametrize("script", SHELL_SCRIPTS, ids=lambda path: path.name)
def test_shell_scripts_parse_are_executable_and_stop_at_the_first_failure(script: Path) -> None:
    """A maintainer script that goes on after a failed command leaves a package half installed."""
    subprocess.run(["sh", "-n", script], check=True)

    assert script.stat().st_mode & 0o111
    assert re.search(r"^set -eu?$", script.read_text(), re.MULTILINE)


def test_maintainer_scripts_name_the_unit_that_is_shipped() -> None:
    for name in ("postinst", "prerm", "postrm"):
        assert {UNIT.name} == set(re.findall(r"\b\w+\.service\b", (DEBIAN / name).read_text()))


def test_the_unit_runs_what_the_package_installs() -> None:
    """The paths and the user are written in the unit, in the build and in postinst."""
    unit = UNIT.read_text()
    postinst = (DEBIAN / "postinst").read_text()

    assert (
        "ExecStart=/opt/kalda/bin/kalda start --dir /var/lib/kalda --config /etc/kalda/server.properties"
        in unit
    )
    assert "User=kalda\nGroup=kalda\n" in unit
    assert "adduser --quiet --system --group --home /var/lib/kalda --no-create-home kalda" in postinst
    assert (
        'install -m 644 "$here/server.properties" "$root/etc/kalda/server.properties"'
        in (DEBIAN / "build.sh").read_text()
    )


def test_no_maintainer_script_deletes_records() -> None:
    """A purge may remove settings; the records may be the only copy that exists."""
    for name in ("postinst", "prerm", "postrm"):
        commands = re.sub(r"(#|echo ).*", "", (DEBIAN / name).read_text())

        assert not re.search(r"\brm\b", commands), name


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert (kalda.__version__, kalda.__version__) == (chart["version"], chart["appVersion"])


def test_the_release_workflow_pins_actions_and_grants_rights_by_job() -> None:
    """A tag of an action can be moved to other code, which would run with the rights to publish."""
    text = (ROOT / ".github/workflows/release.yml").read_text()
    workflow = yaml.safe_load(text)

    uses = re.findall(r"uses: (\S+)(.*)", text)
    assert [] == [action for action, _ in uses if not re.search(r"@[0-9a-f]{40}$", action)]
    assert [] == [action for action, comment in uses if not re.fullmatch(r"  # v\d+(\.\d+)*", comment)]
    assert {} == workflow["permissions"]
    for name, job in workflow["jobs"].items():
        if name != "publish":
            assert {"contents": "read"} == job["permissions"], name
    assert "release" == workflow["jobs"]["publish"]["environment"]


def test_the_release_workflow_runs_scripts_that_exist() -> None:
    scripts = set(re.findall(r"contrib/[\w/]+\.sh", (ROOT / ".github/workflows/release.yml").read_text()))

    assert {path.relative_to(ROOT).as_posix() for path in SHELL_SCRIPTS if path.suffix} == scripts


def test_tools_of_a_release_are_pinned() -> None:
    lines = (CONTRIB / "release/requirements.txt").read_text().splitlines()

    assert [] == [
        line for line in lines if line and line[0] != "#" and not re.fullmatch(r"[\w-]+==[\w.]+", line)
    ]
