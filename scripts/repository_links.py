"""Parses the links in the repository's Markdown files and checks that their targets exist.

A page links to a source file by its path relative to the page, as GitHub resolves it. The text of the link
names a function or class, optionally after its file:
``[`Dispatcher.on_frame`](../src/kalda/broker/requests/dispatch.py)`` or
``[`dispatch.py:Dispatcher.on_frame`](../src/kalda/broker/requests/dispatch.py)``. `problem` returns what is
wrong with such a link, so that a test fails when a function is renamed and the page is not. Fenced code is
skipped.
"""

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

REPOSITORY = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?<!!)\[(?P<text>[^\[\]]*)\]\((?P<target>[^()\s]+)\)")
_FENCE = re.compile(r"^[ \t]*(```|~~~).*?^[ \t]*\1[ \t]*$", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"`(?:(?P<file>[\w/]+\.py):)?(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\(\))?`")
_OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:|#|/")


@dataclass(frozen=True, slots=True)
class Link:
    """A link to another file of the repository."""

    page: str
    """Path of the page that contains the link, from the repository's root."""
    text: str
    path: str
    """Path of the link's target, from the repository's root."""
    anchor: str

    @property
    def name(self) -> str:
        """The function or class that the text names, e.g. ``Log.append``; empty where the text names none."""
        match = _NAME.fullmatch(self.text)
        is_file = self.text.endswith(".py`") or not self.path.endswith(".py")
        return match["name"] if match and not is_file else ""

    @property
    def file(self) -> str:
        """The file that the text names, e.g. ``storage/log.py``; empty where the text names none."""
        match = _NAME.fullmatch(self.text)
        return match["file"] or "" if match else self.text.strip("`") if self.text.endswith(".py`") else ""


def links(page: str, markdown: str) -> Iterator[Link]:
    """Return the links of a page to other files of the repository; `page` is its path from the root."""
    for match in LINK.finditer(_FENCE.sub("", markdown)):
        link = parsed(page, match)
        if link is not None:
            yield link


def parsed(page: str, match: re.Match[str]) -> Link | None:
    """Return the link in a match of `LINK`; None if it leads out of the repository or to its own page."""
    target = match["target"]
    if _OUTSIDE.match(target):
        return None
    path, _, anchor = target.partition("#")
    return Link(page, match["text"], _normal(PurePosixPath(page).parent / path), anchor)


def problem(link: Link) -> str:
    """Return what is wrong with a link, or an empty string."""
    place = REPOSITORY / link.path
    if not place.exists():
        return f"{link.page} links to {link.path}, which does not exist"
    if link.file and not f"/{link.path}".endswith(f"/{link.file}"):
        return f"{link.page} links to {link.path} with the text {link.file}"
    if link.name and line_of(link.path, link.name) == 0:
        return f"{link.page} links to {link.name} in {link.path}, which does not define it"
    return ""


def line_of(path: str, name: str) -> int:
    """Return the line on which a Python file defines a function, class or constant; 0 if it does not."""
    return _definitions(path).get(name, 0)


@functools.cache
def _definitions(path: str) -> dict[str, int]:
    found: dict[str, int] = {}
    _collect(ast.parse((REPOSITORY / path).read_text()), "", found)
    return found


def _collect(node: ast.AST, prefix: str, found: dict[str, int]) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.setdefault(prefix + child.name, child.lineno)
            _collect(child, f"{prefix}{child.name}.", found)
        elif isinstance(child, ast.Assign | ast.AnnAssign):
            for target in child.targets if isinstance(child, ast.Assign) else [child.target]:
                if isinstance(target, ast.Name):
                    found.setdefault(prefix + target.id, child.lineno)
        else:
            _collect(child, prefix, found)


def _normal(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts) or "."
