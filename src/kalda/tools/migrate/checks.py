"""Checks one broker: its file with the directories that it names, or the settings that it describes."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from kalda.command.values import read_settings
from kalda.tools.migrate.directory_checks import check_directories
from kalda.tools.migrate.read_directories import read_directory
from kalda.tools.migrate.settings_checks import check_settings, is_kraft_file
from kalda.tools.migrate.verdicts import Level, Verdict

_FILES: Final = ("ssl.keystore.location", "ssl.truststore.location", "java.security.auth.login.config")
"""The ends of names of settings whose value is a file that the broker reads."""


def check_file(
    path: Path, *, cluster_id: str | None, has_kerberos: bool, reads_directories: bool
) -> list[Verdict]:
    """Judge a ``server.properties`` and, if asked for, the log directories that it names.

    Args:
        path: the file.
        cluster_id: the id of the cluster where it is known.
        has_kerberos: whether the library of GSSAPI is installed with Kalda.
        reads_directories: whether the directories are on this machine and to be read.

    Raises:
        ToolUsageError: the file cannot be read, or is no properties file.
    """
    properties = read_settings("--from", path)
    found = check_settings(str(path), properties, has_kerberos=has_kerberos)
    if reads_directories and not is_kraft_file(properties):
        named = properties.get("log.dirs") or properties.get("log.dir") or ""
        directories = [each.strip() for each in named.split(",") if each.strip()]
        found += _check_files(str(path), properties)
        broker_id = properties.get("broker.id", "-1").strip()
        found += check_directories(
            [read_directory(each) for each in directories],
            broker_id=int(broker_id) if broker_id.isdecimal() else None,
            cluster_id=cluster_id,
        )
    return found


def check_described_settings(where: str, settings: Mapping[str, str], *, has_kerberos: bool) -> list[Verdict]:
    """Judge the settings that a broker describes; it hides passwords, so login modules are not missed."""
    found = check_settings(where, settings, has_kerberos=has_kerberos)
    return [each for each in found if not each.subject.endswith("sasl.jaas.config")]


def _check_files(where: str, properties: Mapping[str, str]) -> Iterator[Verdict]:
    for name, path in sorted(properties.items()):
        if name.endswith(_FILES) and path.strip() and not os.access(path.strip(), os.R_OK):
            text = f"`{name}`={path}: this user cannot read the file; run Kalda as the user of Kafka"
            yield Verdict(Level.STOPS, name, where, text)
