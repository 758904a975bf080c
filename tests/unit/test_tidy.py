"""Rules of this repository that no tool knows; each failure names the place."""

import ast
import io
import re
import tokenize
from pathlib import Path

import grimp
import pytest

from kalda.broker.requests.handlers import HANDLERS

SOURCE = Path(__file__).parents[2] / "src"
MODULES = sorted(SOURCE.rglob("*.py"))
TESTS = Path(__file__).parents[1]
LOGGER = "logger: Final = logging.getLogger(__name__)"

TRANSLATED_WORDS = re.compile(
    r"\b(tell|tells|telling|told|whoever|whom|anew|thereby|of today"
    r"|doomed|farewell|somebody|mouths?|hears|learns)\b",
    re.IGNORECASE,
)
"""Words that mark prose which reads as translated; see the rules on English in CONTRIBUTING.md."""


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_module_is_tidy(path: Path) -> None:
    text = path.read_text()
    tree = tree_of(path)
    name = path.relative_to(SOURCE)
    assert ast.get_docstring(tree), f"{name} does not say what it is"
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            raise AssertionError(f"{name}:{node.lineno} catches everything without naming it")
    for line in re.findall(r"^.*getLogger\(__name__\).*$", text, re.MULTILINE):
        assert LOGGER == line, f"{name} has a logger of another form than `{LOGGER}`"
    assert not re.search(r"\b(TODO|FIXME|XXX)\b", text), f"{name} has a note that belongs in an issue"


def test_every_message_has_a_module_and_every_handler_is_registered() -> None:
    """Adding an API is one module with its declaration and one with its handler; none is forgotten."""
    handlers = {path.stem for path in (SOURCE / "kalda/broker/requests/handlers").glob("*.py")} - {"__init__"}
    messages = {path.stem for path in (SOURCE / "kalda/protocol/messages").glob("*.py")} - {"__init__"}

    assert handlers <= messages
    assert handlers == {handler.key.name.lower() for handler in HANDLERS}


@pytest.mark.parametrize(
    "path", sorted((SOURCE / "kalda/broker/requests/handlers").glob("[a-z]*.py")), ids=lambda p: p.stem
)
def test_every_handler_lists_its_versions(path: Path) -> None:
    """The docstring tells what each version changed and what is not implemented."""
    docstring = ast.get_docstring(tree_of(path)) or ""

    assert re.search(r"\(key \d+\), versions? \d", docstring), f"{path.stem} names no key and versions"


def is_expected(node: ast.expr | None) -> bool:
    """Return whether an expression is what a test expects: a literal, a constant or ``expected...``."""
    match node:
        case ast.Constant() | None:
            return True
        case ast.Name(id=name):
            return name.isupper() or name.startswith("expected")
        case ast.Attribute(attr=name):
            return name.isupper()
        case ast.UnaryOp(operand=operand):
            return is_expected(operand)
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return all(map(is_expected, parts))
        case ast.Dict(keys=keys, values=values):
            return all(map(is_expected, [*keys, *values]))
    return False


def test_assertions_name_the_expected_value_first() -> None:
    """With one order, the reader of a failure knows which side is which."""
    reversed_ones = []
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(tree_of(path)):
            match node:
                case ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right])):
                    if is_expected(right) and not is_expected(left):
                        reversed_ones.append(f"{path.relative_to(TESTS)}:{node.lineno}")
    assert [] == reversed_ones


def circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """Return the largest sets of modules in which each one imports each other, directly or not."""

    def reachable(module: str) -> set[str]:
        found: set[str] = set()
        waiting = [module]
        while waiting:
            new = graph[waiting.pop()] - found
            found |= new
            waiting += new
        return found

    imported = {module: reachable(module) for module in graph}
    return {
        frozenset(other for other in imported[module] if module in imported[other])
        for module in graph
        if module in imported[module]
    }


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"f", "a"}, "f": {"g"}, "g": {"e"}}

    assert {frozenset("bc"), frozenset("efg")} == circles(graph)


def test_no_modules_import_each_other() -> None:
    """A circle of imports is one module in several files: none of them can be read or tested alone.

    Imports for type checkers and those inside functions count too: they hide a circle, they do not open it.
    """
    imports = grimp.build_graph("kalda", cache_dir=None)
    graph = {module: imports.find_modules_directly_imported_by(module) for module in imports.modules}
    graph["kalda"] = set()  # it offers the public names, which load lazily
    assert [] == [sorted(circle) for circle in circles(graph)]


def test_only_modules_that_re_export_names_have_an_all() -> None:
    """mypy needs ``__all__`` to let an imported name be imported again; elsewhere it repeats the module."""
    needless = []
    for path in MODULES:
        if "__all__" not in path.read_text():
            continue
        nodes = list(ast.walk(tree_of(path)))
        imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
        imported = {alias.asname or alias.name for node in imports for alias in node.names}
        for node in nodes:
            match node:
                case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=names)):
                    if not imported & {ast.literal_eval(name) for name in names}:
                        needless.append(str(path.relative_to(SOURCE)))
    assert [] == needless


def prose_of(path: Path) -> list[tuple[int, str]]:
    """Return a module's comments and string literals, or a page's lines, with their line numbers."""
    text = path.read_text()
    if path.suffix == ".md":
        return list(enumerate(text.splitlines(), 1))
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [(token.start[0], token.string) for token in tokens if token.type in kinds]


def test_prose_has_no_words_that_mark_a_translation() -> None:
    """Code returns, raises, sends and notifies; the verb must show the reader which of them happens."""
    root = SOURCE.parent
    found = [
        f"{path.relative_to(root)}:{line} {match[0]}"
        for path in [*MODULES, *sorted((root / "docs").rglob("*.md")), root / "README.md"]
        if TRANSLATED_WORDS.search(path.read_text())
        for line, text in prose_of(path)
        for match in TRANSLATED_WORDS.finditer(text)
    ]
    assert [] == found
