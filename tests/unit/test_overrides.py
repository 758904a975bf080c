"""Methods that override a method of a base class do not repeat its docstring."""

import ast
from collections.abc import Iterator
from pathlib import Path

from kalda.common.overriding import override

SOURCE = Path(__file__).parents[2] / "src"


def test_override_returns_the_method_itself() -> None:
    """The decorator costs nothing when the method is called."""

    def method() -> None:
        pass

    assert method is override(method)


def test_no_override_repeats_the_docstring_of_its_base() -> None:
    """A copy says nothing, and becomes wrong when the other docstring changes; `override` replaces it."""
    assert [] == list(_repeated(SOURCE))


def test_a_repeated_docstring_is_found(tmp_path: Path) -> None:
    """The rule sees a base class of the same module and one that is imported."""
    base = 'class Base:\n    def close(self):\n        """Close it."""\n\n'
    (tmp_path / "base.py").write_text(base + base.replace("Base", "Same(Base)"), "utf-8")
    (tmp_path / "other.py").write_text(
        "from base import Base\n" + base.replace("Base", "Other(Base)"), "utf-8"
    )

    assert ["base.Same.close", "other.Other.close"] == list(_repeated(tmp_path))


def _repeated(source: Path) -> Iterator[str]:
    classes: dict[str, ast.ClassDef] = {}
    bases: dict[str, list[str]] = {}
    for path in sorted(source.rglob("*.py")):
        module = ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
        tree = ast.parse(path.read_text("utf-8"))
        names = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in tree.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        found = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        names |= {node.name: f"{module}.{node.name}" for node in found}
        for node in found:
            named = [each.value if isinstance(each, ast.Subscript) else each for each in node.bases]
            classes[f"{module}.{node.name}"] = node
            bases[f"{module}.{node.name}"] = [
                names.get(each.id, "") for each in named if isinstance(each, ast.Name)
            ]
    for name, node in classes.items():
        above = {key: text for base in _ancestors(name, bases) for key, text in _docs(classes.get(base))}
        for method, text in _docs(node):
            if above.get(method) == text:
                yield f"{name}.{method}"


def _ancestors(name: str, bases: dict[str, list[str]]) -> Iterator[str]:
    for base in bases.get(name, ()):
        yield base
        yield from _ancestors(base, bases)


def _docs(node: ast.ClassDef | None) -> Iterator[tuple[str, str]]:
    for each in () if node is None else node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and (text := ast.get_docstring(each)):
            yield each.name, text
