"""Names the tools and loads the module of one only when its command runs.

`LazyGroup` lists every tool by the help text in `TOOLS` without importing it, so that `kalda topics --help`
costs one module. This module must not import a tool.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Final

import click

from kalda.command.groups import SuggestingGroup


@dataclass(frozen=True, slots=True)
class ToolEntry:
    """Where a tool is, and its line in the list of commands."""

    place: str
    """``module:attribute`` of a `click.Command`."""

    help: str
    """One sentence; the tool's own help begins with it, which a test checks."""


_TOOLS = "kalda.tools"

TOOLS: Final[dict[str, ToolEntry]] = {
    "topics": ToolEntry(f"{_TOOLS}.topics:topics", "Create, list, describe, alter and delete topics."),
    "configs": ToolEntry(
        f"{_TOOLS}.configs:configs", "Describe and alter settings of topics, brokers, groups."
    ),
    "groups": ToolEntry(f"{_TOOLS}.groups:groups", "List, describe, reset and delete groups."),
    "share-groups": ToolEntry(
        f"{_TOOLS}.share_groups:share_groups", "List, describe, reset and delete share groups."
    ),
    "produce": ToolEntry(
        f"{_TOOLS}.console.produce:produce", "Send lines as records: from stdin, or from files."
    ),
    "consume": ToolEntry(
        f"{_TOOLS}.console.consume:consume",
        "Print records as lines, up to the end or with --follow.",
    ),
    "sql": ToolEntry(f"{_TOOLS}.sql.command:sql", "Query topics with SQL."),
    "verify-replicas": ToolEntry(
        f"{_TOOLS}.verify_replicas.command:verify_replicas",
        "Compare the records of all replicas of each partition.",
    ),
    "perf": ToolEntry(f"{_TOOLS}.perf.command:perf", "Measure a cluster, with the columns of Kafka's tools."),
    "offsets": ToolEntry(f"{_TOOLS}.offsets:offsets", "Look up offsets of partitions by time."),
    "delete-records": ToolEntry(
        f"{_TOOLS}.delete_records:delete_records", "Delete the first records of partitions."
    ),
    "reassign": ToolEntry(f"{_TOOLS}.reassign:reassign", "Move partitions to other brokers and directories."),
    "elect-leaders": ToolEntry(f"{_TOOLS}.elect_leaders:elect_leaders", "Elect the leaders of partitions."),
    "log-dirs": ToolEntry(
        f"{_TOOLS}.log_dirs:log_dirs", "Describe the directories of brokers and the logs in them."
    ),
    "transactions": ToolEntry(
        f"{_TOOLS}.transactions:transactions",
        "List, describe and abort transactions; find hanging ones.",
    ),
    "acls": ToolEntry(
        f"{_TOOLS}.acls:acls",
        "List, add and remove ACLs.",
    ),
    "users": ToolEntry(f"{_TOOLS}.users:users", "List, set and delete the users that log in by SCRAM."),
    "quotas": ToolEntry(f"{_TOOLS}.quotas:quotas", "List, set and remove quotas of users and clients."),
    "client-metrics": ToolEntry(
        f"{_TOOLS}.client_metrics:client_metrics",
        "List, set and delete subscriptions to metrics of clients.",
    ),
    "delegation-tokens": ToolEntry(
        f"{_TOOLS}.delegation_tokens:delegation_tokens", "Create, list, renew and end delegation tokens."
    ),
    "faults": ToolEntry(f"{_TOOLS}.faults:faults", "Show, set and clear the faults of a test cluster."),
    "features": ToolEntry(f"{_TOOLS}.features:features", "Describe, raise, lower and disable features."),
    "why": ToolEntry(
        f"{_TOOLS}.why.command:why",
        "Say why a partition, group or record is as it is.",
    ),
    "cluster": ToolEntry(
        f"{_TOOLS}.cluster:cluster", "Show brokers, versions, health, history; take a broker out."
    ),
    "doctor": ToolEntry(
        f"{_TOOLS}.doctor.command:doctor", "Check a cluster and a machine; rank what is wrong."
    ),
    "dump-log": ToolEntry(
        f"{_TOOLS}.dump_log.command:dump_log", "Print segments, indexes, snapshots and checkpoints."
    ),
    "schemas": ToolEntry(
        f"{_TOOLS}.schemas.command:schemas",
        "List, register, test and copy schemas of a registry.",
    ),
    "state": ToolEntry(
        f"{_TOOLS}.state.command:state",
        "Keep topics, settings and offsets of groups as files.",
    ),
    "zk": ToolEntry(
        f"{_TOOLS}.zk.command:zk",
        "Read and change the tree of a coordination server.",
    ),
    "coordination": ToolEntry(
        f"{_TOOLS}.coordination.command:coordination",
        "Move a cluster between ZooKeeper, etcd and `kalda start`.",
    ),
    "pipeline": ToolEntry(
        "kalda.tools.pipeline.group:pipeline",
        "Run Spark pipelines from topics to tables and topics.",
    ),
    "mirror": ToolEntry(
        "kalda.tools.mirror:mirror",
        "Copy topics and groups between clusters.",
    ),
    "migrate": ToolEntry(
        f"{_TOOLS}.migrate.command:migrate",
        "Replace the brokers of a Kafka cluster, and go back.",
    ),
    "nats": ToolEntry(f"{_TOOLS}.nats.command:nats", "Publish, subscribe and ask over a listener of NATS."),
    "mcp": ToolEntry(f"{_TOOLS}.mcp.command:mcp", "Serve tools for agents over stdin and stdout."),
    "http": ToolEntry("kalda.cli_http:http", "Serve schema registry, gateway and console over HTTP."),
    "simulate": ToolEntry(
        "kalda.cli_simulate:simulate",
        "Run a cluster in virtual time, from a seed, with faults.",
    ),
    "legacy": ToolEntry(
        f"{_TOOLS}.legacy.command:legacy", "Run tools of Kafka 0.7 and 0.8 by their class names."
    ),
    "completion": ToolEntry(f"{_TOOLS}.completion:completion", "Print the completion script of a shell."),
}
"""The tools by command name, in the order of the list of commands."""


SECTIONS: Final[dict[str, tuple[str, ...]]] = {
    "Servers": ("start", "broker", "zookeeper", "http", "mcp", "testing"),
    "Data": (
        "topics",
        "produce",
        "consume",
        "sql",
        "groups",
        "share-groups",
        "offsets",
        "delete-records",
        "transactions",
        "verify-replicas",
        "perf",
        "pipeline",
        "mirror",
        "schemas",
    ),
    "Cluster": (
        "cluster",
        "doctor",
        "why",
        "configs",
        "acls",
        "users",
        "quotas",
        "delegation-tokens",
        "client-metrics",
        "faults",
        "features",
        "reassign",
        "elect-leaders",
        "log-dirs",
        "dump-log",
        "migrate",
        "state",
        "coordination",
        "zk",
    ),
    "More": ("help", "version", "completion", "nats", "simulate", "legacy"),
}
"""The commands as the list of all of them shows them."""

NAMED_ONLY: Final = "More"
"""The last section, whose commands are named in one line: the whole has to fit two screens."""


class LazyGroup(SuggestingGroup):
    """The root command: its own commands, then every tool, each loaded when it is resolved."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the options without an empty line in front of them, then the commands."""
        rows = [row for each in self.get_params(ctx) if (row := each.get_help_record(ctx)) is not None]
        formatter.write_heading("Options")
        with formatter.indentation():
            formatter.write_dl(rows)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by section, without empty lines: the whole fits two screens of 25 lines."""
        width = max(map(len, self.list_commands(ctx)))
        for heading, names in SECTIONS.items():
            if heading == NAMED_ONLY:
                formatter.write(f"{heading}: {', '.join(names)}\n")
                continue
            formatter.write_heading(heading)
            with formatter.indentation():
                formatter.write_dl(self.command_rows(ctx, names, width))

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description on the line below the usage."""
        formatter.write(f"  {self.help}\n")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one example on one line, the last that two screens have."""
        from kalda.command.examples import OF_THE_WHOLE

        formatter.write(f"Example: {OF_THE_WHOLE}\n")

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return [*self.commands, *(name for name in TOOLS if name not in self.commands)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; a tool that is not loaded is a placeholder with its name and help."""
        if cmd_name in TOOLS and cmd_name not in self.commands:
            return click.Command(cmd_name, help=TOOLS[cmd_name].help)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that `args` begins with, and load it when it is a tool."""
        if args and args[0] in TOOLS:
            self.add_command(load_tool(args[0]), args[0])
        return super().resolve_command(ctx, args)


def load_tool(name: str) -> click.Command:
    """Import a tool of `TOOLS` and return its command."""
    module, _, attribute = TOOLS[name].place.partition(":")
    loaded = getattr(import_module(module), attribute)
    assert isinstance(loaded, click.Command), TOOLS[name].place
    return loaded
