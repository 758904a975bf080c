"""The options that all long runs with faults take."""

import argparse
import random
from pathlib import Path

from tests.chaos.copier_clients import KALDA, LIBRDKAFKA


def rounds_parser(description: str | None, rounds: int) -> argparse.ArgumentParser:
    """Return a parser with the number of rounds, the seed that replays a run's choices, and the client."""
    parser = _seeded_parser(description, rounds)
    parser.add_argument(
        "--client",
        choices=(LIBRDKAFKA, KALDA),
        default=LIBRDKAFKA,
        help="the library that loads, readers and copiers run on",
    )
    return parser


def application_parser(description: str | None, *, rounds: int, ids: int) -> argparse.ArgumentParser:
    """Return a parser for a run on a Spark application, which a time bounds as well."""
    parser = _seeded_parser(description, rounds)
    parser.add_argument("--ids", type=int, default=ids, help="how many ids all rounds have together")
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no round after this time")
    parser.add_argument("--keep", type=Path, help="a directory for logs and data, which stays")
    return parser


def cluster_parser(
    description: str | None, *, rounds: int, copiers: int, copiers_help: str
) -> argparse.ArgumentParser:
    """Return a parser for a run on a cluster."""
    parser = rounds_parser(description, rounds)
    parser.add_argument("--real-zookeeper", action="store_true", help="coordinate through a real ZooKeeper")
    parser.add_argument("--copiers", type=int, default=copiers, help=copiers_help)
    parser.add_argument("--keep", type=Path, help="a directory to leave logs and data in")
    return parser


def _seeded_parser(description: str | None, rounds: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    return parser
