"""What golden transcripts share: blocks of commands, a line of dashes, and what follows from them.

A block of comments alone stays as it is. With ``KALDA_REWRITE_TRANSCRIPTS=1`` what follows is written anew.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path


def replay(path: Path, play: Callable[[list[str]], Iterable[str]]) -> str:
    """Return the transcript with what follows from its commands today.

    `play` is given the commands of a block, without its comments, and returns the lines that follow.
    """
    blocks: list[str] = []
    for block in path.read_text(encoding="utf-8").strip().split("\n\n"):
        lines = [line for line in block.split("\n----", 1)[0].splitlines() if line]
        commands = [line for line in lines if not line.startswith("#")]
        if commands:
            lines += ["----", *play(commands)]
        blocks.append("\n".join(lines))
    replayed = "\n\n".join(blocks) + "\n"
    if os.environ.get("KALDA_REWRITE_TRANSCRIPTS"):
        path.write_text(replayed, encoding="utf-8")
    return replayed
