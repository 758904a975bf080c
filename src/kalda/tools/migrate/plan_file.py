"""Reads and writes the plan of a roll, a YAML file that an operator edits."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kalda.command.errors import ToolUsageError
from kalda.tools.migrate.walk import Accepted, BrokerPlan, Plan, Software

_ORDERS: Final = {"controller-last": True, "as-written": False}
_COMMANDS: Final = {
    "stop_kafka": ("stop", Software.KAFKA),
    "start_kalda": ("start", Software.KALDA),
    "stop_kalda": ("stop", Software.KALDA),
    "start_kafka": ("start", Software.KAFKA),
}
_KEYS: Final = ("cluster_id", "bootstrap_servers", "order", "wait_seconds", "accept", "brokers")

_HEAD: Final = """\
# The plan of `kalda migrate run`; `kalda migrate back` walks back by it. Change what you like.
# Commands are those of a shell on this machine. Each has to be repeatable: it may run again after the tool
# was killed. A command that stops a broker returns when the process has ended.
cluster_id: {cluster_id}
bootstrap_servers: {bootstrap_servers}
order: controller-last  # or as-written; the brokers below are in the order of the roll
wait_seconds: 300  # how long the cluster may take for one phase before the roll stops
accept: {accept}  # pauses of clients: single-replicas, min-insync-replicas
brokers:
"""


@dataclass(frozen=True, slots=True)
class PlanFile:
    """A plan and the addresses of the cluster."""

    plan: Plan
    bootstrap_servers: str


@dataclass(frozen=True, slots=True)
class Templates:
    """Commands with ``{id}`` and ``{host}`` for what differs between brokers."""

    commands: Mapping[str, str]
    """By key of the plan file, e.g. ``stop_kafka``."""
    via: str | None = None
    """How a command gets to a host, as in ``ssh {host} {command}``; None runs it on this machine."""

    def filled(self, key: str, broker_id: int, host: str) -> str:
        """Return the command of one broker."""
        command = _fill(self.commands[key], broker_id, host)
        if self.via is None:
            return command
        return _fill(self.via.replace("{command}", shlex.quote(command)), broker_id, host)


def write_plan(
    cluster_id: str,
    bootstrap_servers: str,
    hosts: Mapping[int, str],
    templates: Templates,
    *,
    accept: Sequence[Accepted] = (),
) -> str:
    """Return the text of a plan file for brokers, in the order of `hosts`."""
    text = _HEAD.format(
        cluster_id=_scalar(cluster_id),
        bootstrap_servers=_scalar(bootstrap_servers),
        accept=f"[{', '.join(accept)}]",
    )
    for broker_id, host in hosts.items():
        text += f"- id: {broker_id}\n  host: {_scalar(host)}\n"
        for key in _COMMANDS:
            text += f"  {key}: {_scalar(templates.filled(key, broker_id, host))}\n"
    return text


def read_plan(path: Path) -> PlanFile:
    """Read a plan file.

    Raises:
        ToolUsageError: it cannot be read, or says something that is not allowed.
    """
    import yaml

    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ToolUsageError(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ToolUsageError(f"{path} is no YAML: {error}") from None
    try:
        return parse_plan(document)
    except ToolUsageError as error:
        raise ToolUsageError(f"{path}: {error}") from None


def parse_plan(document: object) -> PlanFile:
    """Read the document of a plan file.

    Raises:
        ToolUsageError: a key is missing, unknown, or has a value that is not allowed.
    """
    fields = _mapping("the plan", document, _KEYS, required=("cluster_id", "bootstrap_servers", "brokers"))
    order = fields.get("order", "controller-last")
    if order not in _ORDERS:
        raise ToolUsageError(f"order={order} is not allowed: it takes {' or '.join(_ORDERS)}")
    wait_seconds = fields.get("wait_seconds", 300)
    if isinstance(wait_seconds, bool) or not isinstance(wait_seconds, int | float) or wait_seconds <= 0:
        raise ToolUsageError(f"wait_seconds={wait_seconds} is not allowed: it takes a number above 0")
    accept = fields.get("accept") or []
    unknown = [each for each in accept if each not in [*Accepted]] if isinstance(accept, list) else [accept]
    if unknown:
        allowed = ", ".join(Accepted)
        raise ToolUsageError(f"accept={unknown[0]} is not allowed: it takes a list of {allowed}")
    if not isinstance(fields["brokers"], list) or not fields["brokers"]:
        raise ToolUsageError("brokers must be a list with at least one broker")
    brokers = tuple(_broker(number, each) for number, each in enumerate(fields["brokers"], 1))
    ids = [each.broker_id for each in brokers]
    if len(set(ids)) < len(ids):
        raise ToolUsageError(f"brokers: an id comes twice, in {', '.join(map(str, ids))}")
    plan = Plan(
        cluster_id=str(fields["cluster_id"]),
        brokers=brokers,
        controller_last=_ORDERS[str(order)],
        wait_seconds=float(wait_seconds),
        accept=frozenset(Accepted(each) for each in accept),
    )
    return PlanFile(plan, str(fields["bootstrap_servers"]))


def _broker(number: int, document: object) -> BrokerPlan:
    what = f"broker {number} of the list"
    fields = _mapping(what, document, ("id", "host", *_COMMANDS), required=("id", *_COMMANDS))
    broker_id = fields["id"]
    if isinstance(broker_id, bool) or not isinstance(broker_id, int) or broker_id < 0:
        raise ToolUsageError(f"{what}: id={broker_id} is not allowed: it takes a number of at least 0")
    commands: dict[str, dict[Software, str]] = {"stop": {}, "start": {}}
    for key, (kind, software) in _COMMANDS.items():
        text = fields[key]
        if not isinstance(text, str) or not text.strip():
            raise ToolUsageError(f"{what}: {key} must be a command of a shell")
        commands[kind][software] = text
    return BrokerPlan(
        broker_id=broker_id, host=str(fields.get("host", "")), stop=commands["stop"], start=commands["start"]
    )


def _mapping(
    what: str, document: object, allowed: Sequence[str], *, required: Sequence[str]
) -> Mapping[str, Any]:
    if not isinstance(document, dict):
        raise ToolUsageError(f"{what} must be a mapping with {', '.join(allowed)}")
    for key in document:
        if key not in allowed:
            raise ToolUsageError(f"{what}: {key} is unknown; it takes {', '.join(allowed)}")
    missing = [key for key in required if key not in document]
    if missing:
        raise ToolUsageError(f"{what}: {missing[0]} is missing")
    return document


def _fill(template: str, broker_id: int, host: str) -> str:
    # Not str.format: braces are common in commands.
    return template.replace("{id}", str(broker_id)).replace("{host}", host)


def _scalar(text: str) -> str:
    """Return a text as a YAML scalar on one line."""
    import json

    return json.dumps(text, ensure_ascii=False)
