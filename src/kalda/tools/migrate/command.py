"""The commands of `kalda migrate`."""

import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from kalda.command.command import Tool, command, noun
from kalda.command.errors import ToolUsageError
from kalda.command.output import Json
from kalda.command.tables import Table
from kalda.command.zookeeper_security import zookeeper_security_option
from kalda.common.log_text import counted
from kalda.tools.migrate.roll_commands import COMMANDS
from kalda.tools.migrate.verdicts import EXIT_CODES, Level, Verdict, merged, worst

migrate = noun("Replace the brokers of a Kafka cluster, and go back.")

for _command in COMMANDS:
    migrate.add_command(_command)

_CONNECTION_TIMEOUT_MS: Final = 10_000


@command("check", migrate)
@click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="FILE|HOST:PORT,...",
    help="A broker's server.properties, whose log directories are read too, or the brokers; repeatable.",
)
@click.option(
    "--zookeeper", metavar="HOST:PORT,...[/CHROOT]", help="The ZooKeeper of the cluster, to be read too."
)
@click.option("--no-directories", is_flag=True, help="Do not read the log directories that files name.")
@zookeeper_security_option
async def check(tool: Tool, sources: tuple[str, ...], zookeeper: str | None, no_directories: bool) -> None:
    """Check what stands in the way of replacing the brokers; change nothing.

    Each line has a verdict: fits, look at this, or stops the migration. The exit code is 0 if everything
    fits, 3 if there is something to look at, and 4 if something stops the migration.
    """
    from kalda.tools.migrate.checks import check_file

    files, bootstrap = _split(sources)
    tool = tool.at(bootstrap)
    has_kerberos = find_spec("gssapi") is not None
    found: list[Verdict] = []
    cluster_id = None
    if bootstrap is not None or not tool.is_address_default:
        verdicts, cluster_id = await _check_cluster(tool, has_kerberos=has_kerberos, has_files=bool(files))
        found += verdicts
    elif not files and zookeeper is None:
        raise ToolUsageError("nothing to check: give --from with a server.properties or with brokers")
    if zookeeper is not None:
        found += await _check_zookeeper(zookeeper)
    for file in files:
        found += check_file(
            file, cluster_id=cluster_id, has_kerberos=has_kerberos, reads_directories=not no_directories
        )
    _report(tool, merged(found))


def _split(sources: Iterable[str]) -> tuple[list[Path], str | None]:
    """Return the files and the brokers among the values of --from."""
    files: list[Path] = []
    servers: list[str] = []
    for each in sources:
        if Path(each).exists() or "/" in each or ":" not in each:
            files.append(Path(each))
        else:
            servers.append(each)
    return files, ",".join(servers) or None


async def _check_cluster(
    tool: Tool, *, has_kerberos: bool, has_files: bool
) -> tuple[list[Verdict], str | None]:
    from kalda.tools.migrate.checks import check_described_settings
    from kalda.tools.migrate.cluster_checks import check_cluster
    from kalda.tools.migrate.read_cluster import read_cluster

    async with tool.admin() as admin:
        read = await read_cluster(admin)
    found = check_cluster(read.facts)
    # Files say more: names that Kafka hides, and directories. Without them, the brokers are asked.
    if not has_files and not any(each.is_kraft for each in read.facts.brokers.values()):
        for broker_id, settings in sorted(read.settings.items()):
            if not read.facts.brokers[broker_id].is_kalda:
                found += check_described_settings(f"broker {broker_id}", settings, has_kerberos=has_kerberos)
    return found, read.facts.cluster_id


async def _check_zookeeper(servers: str) -> list[Verdict]:
    from kalda.command.zookeeper_session import open_zookeeper
    from kalda.tools.migrate.cluster_checks import check_zookeeper
    from kalda.tools.migrate.read_cluster import read_zookeeper

    async with open_zookeeper("--zookeeper", servers, _CONNECTION_TIMEOUT_MS) as client:
        return check_zookeeper(await read_zookeeper(client, servers))


def _report(tool: Tool, verdicts: list[Verdict]) -> None:
    level = worst(verdicts)
    documents: list[Json] = [
        {"verdict": each.level.name.lower(), "subject": each.subject, "where": each.where, "text": each.text}
        for each in verdicts
    ]
    counts = {each: sum(verdict.level is each for verdict in verdicts) for each in reversed(Level)}
    summary = ", ".join(f"{count} {each.words}" for each, count in counts.items() if count)
    tool.output.result(
        {"verdict": level.name.lower(), "findings": documents},
        Table(
            ("VERDICT", "SUBJECT", "WHERE", "FOUND"),
            [(each.level.words, each.subject, each.where, each.text) for each in verdicts],
        ),
        "",
        f"{counted(len(verdicts), 'finding')}: {summary}.",
    )
    tool.output.flush()
    if EXIT_CODES[level]:
        sys.exit(EXIT_CODES[level])
