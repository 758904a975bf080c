"""Checks subjects: tokens between dots, of which `*` stands for any one and a last `>` for all the rest."""

from typing import Final

ANY_TOKEN: Final = b"*"
ANY_TOKENS: Final = b">"

TOKENS_MAX: Final = 32
"""Tokens of a subject that a client may subscribe to: each takes memory, and time when messages come. NATS
advises 16 at most; nats-server has a setting for it, `max_sub_tokens`."""


def is_valid_subject(subject: bytes) -> bool:
    """Return whether a client may subscribe to the subject.

    `orders.*.eu` and `orders.>` are valid; `orders..eu` and `orders.>.eu` are not.
    """
    tokens = subject.split(b".")
    return all(tokens) and ANY_TOKENS not in tokens[:-1]


def is_literal(subject: bytes) -> bool:
    """Return whether a subject has no wildcard; `a*` is a token as any other."""
    tokens = subject.split(b".")
    return ANY_TOKEN not in tokens and ANY_TOKENS not in tokens


def is_valid_literal(subject: bytes) -> bool:
    """Return whether a pedantic client may publish to the subject."""
    return is_valid_subject(subject) and is_literal(subject)


def overlaps(one: bytes, other: bytes) -> bool:
    """Return whether any subject matches both patterns."""
    ours, theirs = one.split(b"."), other.split(b".")
    for mine, its in zip(ours, theirs, strict=False):
        if mine == ANY_TOKENS or its == ANY_TOKENS:
            return True
        if mine != its and mine != ANY_TOKEN and its != ANY_TOKEN:
            return False
    return len(ours) == len(theirs)


def overlaps_prefix(pattern: bytes, prefix: bytes) -> bool:
    """Return whether any subject that begins with a text matches a pattern.

    `orders.*.eu` and `orders.5` do, `orders.*` and `orders.5.` do not.
    """
    ours, theirs = pattern.split(b"."), prefix.split(b".")
    for index, its in enumerate(theirs):
        if index >= len(ours):
            return False
        mine = ours[index]
        if mine == ANY_TOKENS:
            return True
        if mine == ANY_TOKEN:
            continue
        if not mine.startswith(its) or (index < len(theirs) - 1 and mine != its):
            return False
    return True
