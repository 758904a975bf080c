"""The noun of `kalda pipeline`, to which the modules of verbs add theirs."""

from typing import Final

import click

from kalda.tools.framework.command import noun

HELP: Final = "Run data pipelines on Spark: topics to tables and topics, declared in a file."

pipeline: Final[click.Group] = noun(HELP)
