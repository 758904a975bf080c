"""Hooks of the documentation build: links into the repository, ranks of the search, the list of decisions.

Pages link to files outside `docs` (source, tests, CONTRIBUTING.md) by relative paths, which GitHub resolves.
The site must work without the repository, so the hooks add a page for each such file, and a link that names a
function leads to its line. A link to a file or function that does not exist causes a warning, which fails the
strict build.
"""

import logging
import re
from pathlib import PurePosixPath
from typing import Any

import repository_links
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from repository_links import REPOSITORY, Link

log = logging.getLogger("mkdocs.plugins.repository")
SEARCH_BOOSTS = {"tutorial/": 3, "how-to/": 3, "start/": 2, "internals/": 0.5, "adr/": 0.3}
"""How much a page counts in the site's search, by directory: a reader wants a task before its history."""
LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", ".json": "json", "": "makefile"}
_DECISION = re.compile(
    r"# (?P<number>\d+)\. (?P<title>.+)\n+Date: (?P<date>[\d-]+)\. Status: (?P<status>(?:[^.\n]|\.(?=\S))+)"
)
_FENCED = re.compile(r"(^[ \t]*(?:```|~~~).*?^[ \t]*(?:```|~~~)[ \t]*$)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each file outside `docs` to which a page links, directly or through added pages."""
    waiting = [(f"docs/{file.src_uri}", file.content_string) for file in files.documentation_pages()]
    waiting += [(path, (REPOSITORY / path).read_text()) for path in _root_pages(files, config)]
    while waiting:
        page, markdown = waiting.pop()
        for link in repository_links.links(page, markdown):
            if _add(files, config, link.path) and link.path.endswith(".md"):
                waiting.append((link.path, (REPOSITORY / link.path).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """Replace the targets of links with pages of the site, and fill in the list of decisions."""
    for directory, boost in SEARCH_BOOSTS.items():
        if page.file.src_uri.startswith(directory):
            page.meta.setdefault("search", {"boost": boost})
    if page.file.src_uri == "adr/index.md":
        markdown += decisions()
    source = _repository_path(page.file.src_uri)
    if not source.endswith(".md"):
        return markdown
    return "".join(
        part if index % 2 else repository_links.LINK.sub(lambda match: _rewritten(source, match, files), part)
        for index, part in enumerate(_FENCED.split(markdown))
    )


def on_page_content(html: str, page: Page, config: Any, files: Files) -> str:
    """Replace the `source:` links of `on_page_markdown` with the addresses of source lines."""

    def address(match: re.Match[str]) -> str:
        file = files.get_file_from_path(match["page"])
        assert file is not None, match["page"]
        return f'href="{file.url_relative_to(page.file)}#__codelineno-0-{match["line"]}"'

    return re.sub(r'href="source:(?P<page>[^"#]+)#(?P<line>\d+)"', address, html)


def _root_pages(files: Files, config: Any) -> list[str]:
    """Add the Markdown files outside `docs` that the navigation names, and return their paths."""
    named = re.findall(r"repository/([\w./-]+\.md)", str(config["nav"]))
    return [path for path in named if _add(files, config, path)]


def _add(files: Files, config: Any, path: str) -> bool:
    place = REPOSITORY / path
    if path.startswith("docs/") or not place.is_file() or files.get_file_from_path(_site_path(path)):
        return False
    text = place.read_text()
    if not path.endswith(".md"):
        front = f"search:\n  exclude: true\nhide: [toc]\ntitle: {place.name}"
        fence = f'`````` {{ .{LANGUAGES.get(place.suffix, "text")} linenums="1" }}'
        text = f"---\n{front}\n---\n\n# `{path}`\n\n{fence}\n{text}\n``````\n"
    files.append(File.generated(config, _site_path(path), content=text))
    return True


def _rewritten(source: str, match: re.Match[str], files: Files) -> str:
    link = repository_links.parsed(source, match)
    if link is None:
        return match[0]
    wrong = repository_links.problem(link)
    if wrong:
        log.warning(wrong)
        return link.text
    target = link.path.removeprefix("docs/") if link.path.startswith("docs/") else _site_path(link.path)
    if (REPOSITORY / link.path).is_dir():
        target = f"{target.removesuffix('.md')}/index.md"
    if files.get_file_from_path(target) is None:
        log.warning("%s links to %s, for which the site has no page", source, link.path)
        return link.text
    return f"[{link.text}]({_address(source, link, target)})"


def _address(source: str, link: Link, target: str) -> str:
    if link.name:
        return f"source:{target}#{repository_links.line_of(link.path, link.name)}"
    here = PurePosixPath(source.removeprefix("docs/") if source.startswith("docs/") else _site_path(source))
    up = "../" * (len(here.parts) - 1)
    return f"{up}{target}" + (f"#{link.anchor}" if link.anchor else "")


def _site_path(path: str) -> str:
    return f"repository/{path}" if path.endswith(".md") else f"repository/{path}.md"


def _repository_path(src_uri: str) -> str:
    if not src_uri.startswith("repository/"):
        return f"docs/{src_uri}"
    path = src_uri.removeprefix("repository/")
    return path if (REPOSITORY / path).exists() else path.removesuffix(".md")


def decisions() -> str:
    """Return the table of the records in `docs/adr`, with their statuses."""
    rows = []
    for path in sorted((REPOSITORY / "docs/adr").glob("[0-9]*.md")):
        match = _DECISION.match(path.read_text())
        if match is None:
            log.warning("docs/adr/%s does not begin with a numbered title, a date and a status", path.name)
            continue
        link = f"[{match['title']}]({path.name})"
        rows.append(f"| {match['number']} | {link} | {match['date']} | {match['status']} |")
    return "\n| | Decision | Date | Status |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
