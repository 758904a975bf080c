"""Links of the Markdown files lead to files and functions that exist; quoted messages are the source's."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import repository_links
from repository_links import REPOSITORY, Link

from kalda.settings.definitions import BROKER_CONFIG, GROUP_CONFIG

PAGES = sorted(
    str(path.relative_to(REPOSITORY))
    for folder, pattern in (
        ("", "*.md"),
        ("docs", "**/*.md"),
        ("benchmarks", "*.md"),
        ("examples", "**/*.md"),
    )
    for path in (REPOSITORY / folder).glob(pattern)
)
SOURCES = [path.read_text() for path in (REPOSITORY / "src").rglob("*.py")]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_functions_that_exist(page: str) -> None:
    """A page names functions by their links; renaming one must not leave the page behind."""
    markdown = (REPOSITORY / page).read_text()

    assert [] == [
        found for link in repository_links.links(page, markdown) if (found := repository_links.problem(link))
    ]


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/")])
def test_every_page_is_in_the_navigation(page: str) -> None:
    """The strict build of the site refuses a page that nothing leads to; this says so without building it."""
    assert page.removeprefix("docs/") in (REPOSITORY / "mkdocs.yml").read_text()


def test_the_list_of_decisions_shows_whole_statuses() -> None:
    """The status of a replaced record links to the later one, whose file name has a dot."""
    hooks = pytest.importorskip("mkdocs_hooks", exc_type=ImportError)

    assert "| superseded by [ADR 36](0036-a-zookeeper-client-on-the-event-loop.md) |" in hooks.decisions()


@pytest.mark.parametrize("page", PAGES)
def test_modules_that_a_page_names_exist(page: str) -> None:
    """Prose names modules as `kalda.storage.log_manager`; a renamed module must not leave the page behind."""
    names = re.findall(r"`(kalda(?:\.\w+)+)", (REPOSITORY / page).read_text())

    others = {*BROKER_CONFIG.keys, *GROUP_CONFIG.keys, "kalda.delivery.at"}
    assert [] == [name for name in names if not is_defined(name) and name not in others]


@pytest.mark.parametrize("page", PAGES)
def test_programs_of_a_page_are_python(page: str) -> None:
    """Some programs run in no test as they need Spark; one that lost its line breaks swallows the page."""
    text = (REPOSITORY / page).read_text()
    fences = [line for line in text.splitlines() if "```" in line]

    for program in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        compile(program, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    assert [] == [line for line in fences if not line.lstrip().startswith("```")]
    assert 0 == len(fences) % 2


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("runbook.md", "add broker"),
        ("runbook.md", "dead broker"),
        ("runbook.md", "disk full"),
        ("run-a-cluster.md", "start brokers"),
        ("run-a-cluster.md", "rolling restart"),
        ("secure-a-cluster.md", "tls certificates"),
        ("command-line.md", "consumer groups lag"),
    ],
)
def test_what_an_operator_searches_for_is_a_heading(page: str, words: str) -> None:
    """The site's search ranks headings; a page without the word in one comes behind the decisions."""
    text = (REPOSITORY / "docs/how-to" / page).read_text()
    headings = [set(re.findall(r"\w+", line.lower())) for line in text.splitlines() if line.startswith("#")]

    assert any(set(words.split()) <= heading for heading in headings), headings


def is_defined(name: str) -> bool:
    """Return whether a dotted name is a module, or something that the longest module in it mentions."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        path = REPOSITORY.joinpath("src", *parts[:count])
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return count == len(parts) or re.search(rf"\b{parts[count]}\b", file.read_text()) is not None
    return False


def test_a_link_to_a_missing_file_or_function_is_a_problem() -> None:
    """The check itself: what it finds, and what it leaves alone."""
    markdown = """
[`links`](../../scripts/repository_links.py) [`Link.name`](../../scripts/repository_links.py)
[`gone`](../../scripts/repository_links.py) [a page](gone.md#part)
[`repository_links.py:Link.name`](../../scripts/repository_links.py)
[`links/elsewhere.py:Link`](../../scripts/repository_links.py)
[elsewhere](https://example.org) [below](#part)
```
[`not a link`](nowhere.py)
```
"""
    found = list(repository_links.links("docs/how-to/page.md", markdown))

    assert [
        "",
        "",
        "docs/how-to/page.md links to gone in scripts/repository_links.py, which does not define it",
        "docs/how-to/page.md links to docs/how-to/gone.md, which does not exist",
        "",
        "docs/how-to/page.md links to scripts/repository_links.py with the text links/elsewhere.py",
    ] == [repository_links.problem(link) for link in found]
    assert not is_defined("kalda.storage.gone")
    assert Link("docs/how-to/page.md", "a page", "docs/how-to/gone.md", "part") == found[3]


def test_a_method_is_found_on_its_line() -> None:
    """The site's links lead to the line of the definition."""
    path = "scripts/repository_links.py"
    lines = Path(repository_links.__file__).read_text().splitlines()

    assert lines[repository_links.line_of(path, "Link.name") - 1].strip().startswith("def name(")
    assert lines[repository_links.line_of(path, "LINK") - 1].startswith("LINK = ")


def quoted_messages() -> list[str]:
    page = (REPOSITORY / "docs/how-to/troubleshooting.md").read_text()
    ours = page.partition("\n## Errors of a client")[0]
    return re.findall(r"^### `(.+)`$", ours, re.MULTILINE)


@pytest.mark.parametrize("message", quoted_messages())
def test_troubleshooting_quotes_messages_that_the_source_has(message: str) -> None:
    """A heading is what a user searches for; `…` stands for a value."""
    parts = [part.strip() for part in message.split("…") if "Address already in use" not in part]

    assert parts
    assert any(all(part in text for part in parts) for text in SOURCES), f"no module says {parts}"


VALUE = re.compile(r"(%[-+ #\d.]*[a-z])")


def texts_with_values(source: str) -> Iterator[list[str | None]]:
    """Return the texts of a module; None stands for a value within one."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            parts = [each.value if isinstance(each, ast.Constant) else None for each in node.values]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 500:
            parts = [node.value]
        else:
            continue
        yield [
            None if piece is None or VALUE.fullmatch(piece) else piece
            for part in parts
            for piece in ([None] if part is None else VALUE.split(str(part)))
        ]


def shown_messages() -> list[str]:
    """Return the messages in the blocks of text of the how-to pages, each as one line."""
    start = re.compile(r"^(?:[\d-]+ [\d:,]+ )?(?:kalda: |(?:INFO|WARNING|ERROR) )", re.MULTILINE)
    return [
        f"{page.name}: {' '.join(each.split())}"
        for page in sorted((REPOSITORY / "docs/how-to").glob("*.md"))
        for block in re.findall(r"^```text\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
        for each in start.split(block)[1:]
    ]


def literal_length(texts: list[str | None], message: str) -> int:
    """Return how many characters of a message are a text of the source; 0 if the text is not in it."""
    position = length = 0
    for each in texts:
        if each is not None:
            found = message.find(each, position)
            if found < 0:
                return 0
            position = found + len(each)
            length += len(each)
    return length


def test_pages_show_messages_that_the_source_has() -> None:
    """A message that changed must change in the pages too."""
    texts = [
        each
        for source in SOURCES
        for each in texts_with_values(source)
        if sum(len(part) for part in each if part is not None) >= 15
    ]
    found = {shown: max(literal_length(each, shown) for each in texts) for shown in shown_messages()}
    unknown = {
        f"{length} of {len(shown)}: {shown}" for shown, length in found.items() if length < 0.2 * len(shown)
    }
    assert set() == unknown
