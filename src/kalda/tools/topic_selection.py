"""Selects the topics that a command names: by name, or by a regular expression that can be no topic's name.

A possible name is always taken literally, so that ``a.b`` never stands for ``a-b``; ``fl.*`` is an expression
for the reason that no topic can have that name.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import click

from kalda.command.errors import ToolError, ToolUsageError
from kalda.command.names import TopicName
from kalda.common.nearest import DATA_CUTOFF, did_you_mean

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin

_Function = TypeVar("_Function", bound=Callable[..., object])
_LITERAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def topic_arguments(function: _Function) -> _Function:
    """Add the names of topics, as arguments and as Kafka's option."""
    arguments = click.argument("names", metavar="[TOPIC]...", nargs=-1, type=TopicName())
    option = click.option(
        "--topic", multiple=True, type=TopicName(), metavar="TOPIC", help="A topic; repeatable."
    )
    return arguments(option(function))


async def names_of_ids(admin: "AsyncAdmin", option: str, ids: Sequence[str]) -> list[str]:
    """Return the names of the topics with these ids, which are written as `kalda topics describe` does.

    Raises:
        ToolUsageError: a text is no id.
        ToolError: no topic has the id.
    """
    from kalda.common.types import uuid_from_text

    if not ids:
        return []
    listings = await admin.list_topics(include_internal=True)
    names = {each.topic_id: name for name, each in listings.items()}
    found = []
    for text in ids:
        try:
            topic_id = uuid_from_text(text)
        except ValueError:
            raise ToolUsageError(
                f"{option}={text} is not allowed: it takes an id such as Abih83qmTFqaToM7M6PR6w"
            ) from None
        if topic_id not in names:
            raise ToolError(f"no topic has the id {text}; `kalda topics describe` prints the ids")
        found.append(names[topic_id])
    return found


async def existing_topics(
    admin: "AsyncAdmin",
    names: Sequence[str],
    *,
    include_internal: bool = True,
    is_missing_allowed: bool = False,
    is_all_default: bool = False,
) -> list[str]:
    """Return the names of the topics that `names` mean, in order.

    Args:
        admin: the client.
        names: names and regular expressions.
        include_internal: whether regular expressions, and no names at all, mean internal topics too.
        is_missing_allowed: whether a name without a topic is left out instead of an error.
        is_all_default: whether no names at all mean all topics.

    Raises:
        ToolError: a name without a topic.
    """
    listings = await admin.list_topics(include_internal=True)
    plain = sorted(name for name, each in listings.items() if include_internal or not each.is_internal)
    if not names and is_all_default:
        return plain
    literal = [name for name in names if _LITERAL.fullmatch(name) and name in listings]
    chosen = dict.fromkeys([*literal, *select(plain, [name for name in names if name not in literal])])
    missing = [name for name in names if name not in chosen and _LITERAL.fullmatch(name)]
    missing += [name for name in names if not _LITERAL.fullmatch(name) and not select(plain, [name])]
    if missing and not is_missing_allowed:
        raise ToolError(_missing_text(missing, plain))
    return list(chosen)


def _missing_text(missing: Sequence[str], existing: Iterable[str]) -> str:
    remedy = "; `kalda topics list` prints the names"
    if len(missing) > 1:
        return f"topics {', '.join(missing)} do not exist{remedy}"
    if not _LITERAL.fullmatch(missing[0]):
        return f"no topic matches {missing[0]}{remedy}"
    return f"topic {missing[0]} does not exist{did_you_mean(missing[0], existing, DATA_CUTOFF) or remedy}"


def select(existing: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return the existing names that are named, or match one of `names` that can only be a pattern.

    >>> select(["a-b", "a.b", "axb"], ["a.b"]), select(["a-b", "a.b", "axb"], ["a[.x]b"])
    (['a.b'], ['a.b', 'axb'])

    Raises:
        ToolUsageError: a pattern is no regular expression.
    """
    literal, patterns = set(), []
    for name in names:
        if _LITERAL.fullmatch(name):
            literal.add(name)
            continue
        try:
            # Kafka's tools take a comma for an alternative.
            patterns.append(re.compile(name.strip().replace(",", "|").replace(" ", "")))
        except re.error as error:
            raise ToolUsageError(
                f"{name!r} is neither a topic's name nor a regular expression: {error}"
            ) from error
    return [name for name in existing if name in literal or any(each.fullmatch(name) for each in patterns)]
