"""The options for the output, which all performance tools of Kafka 0.8 share."""

from collections.abc import Callable
from typing import TypeVar

import click

from kalda.command.option_types import INT32_MAX, Integer
from kalda.tools.legacy.simple_date_format import DEFAULT_PATTERN

C = TypeVar("C", bound=Callable[..., object])


def output_options(function: C) -> C:
    """Add the options that say which lines are printed, and how."""
    for option in (
        click.option("--hide-header", is_flag=True, help="Print no header."),
        click.option(
            "--date-format",
            default=DEFAULT_PATTERN,
            show_default=True,
            metavar="PATTERN",
            help="The format of times, as in java.text.SimpleDateFormat.",
        ),
        click.option("--show-detailed-stats", is_flag=True, help="Print detailed lines instead of the sum."),
        click.option(
            "--reporting-interval",
            type=Integer(1, INT32_MAX),
            default=5000,
            show_default=True,
            metavar="COUNT",
            help="The messages between two detailed lines of a thread.",
        ),
    ):
        function = option(function)
    return function
