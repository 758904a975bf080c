"""The noun of `kalda pipeline`, to which the modules of verbs add theirs."""

from typing import Final

import click

from kalda.command.command import noun

HELP: Final = "Run Spark pipelines from topics to tables and topics.\n\nA YAML file declares one."

pipeline: Final[click.Group] = noun(HELP)
