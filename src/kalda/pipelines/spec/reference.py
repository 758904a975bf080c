"""Writes the reference page of the pipeline file from the declarations that the parser checks with.

Run it as ``python -m kalda.pipelines.spec.reference docs/reference``. The page is committed, and a test fails
when it differs from the declarations.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kalda.pipelines.spec import cases
from kalda.pipelines.spec.nodes import Section
from kalda.pipelines.spec.sections import SECTIONS

PAGE: Final = "pipeline-file.md"

_INTRODUCTION: Final = """\
# The pipeline file

A pipeline file is YAML; [Run data pipelines](../how-to/pipelines.md) shows how to write one.
`kalda pipeline validate FILE` checks it and reports all faults at once, each with its line and column.
With `--json` they are a document: `{"faults": [{"file": ..., "line": ..., "column": ..., "message": ...}]}`.
`kalda pipeline schema` prints the keys below as a JSON schema, for editors.

- Values are text: `on`, `1_000` and `12:30` mean what is written.
- `${NAME}` is an environment variable, `${NAME:-default}` has a default, and `${file:PATH}` is the text of a
  file, such as a mounted secret. `$${` stands for `${`.
- Durations are written `500ms`, `5s`, `10m`, `1h`, `3d`; sizes `64MB`, `1GB`; shares `5%` or `0.05`.
- Where a list is expected, a single value is a list of one.
"""

_EXIT_CODES: Final = """\
## Exit codes

Of all commands: 0 is success; 1 that something failed or was refused, or that a cluster cannot be reached;
2 that the command line or a file is wrong, and that nothing was done. stderr has a line for each error.

| `kalda pipeline` | 0 | 1 |
|---|---|---|
| `validate` | everything that can be checked is right | a topic, a table or the cluster is not \
as the file needs it |
| `test` | all tests passed | a test failed |
| `preview` | all pipelines are shown | one of them cannot process these records |
| `once` | all pipelines ended; also with dead letters, and after SIGTERM, SIGHUP or Ctrl-C | a pipeline \
stopped for good, another process runs one of them, or Spark does not start |
| `run` | as `once` | as `once`; the command goes on as long as one pipeline runs |
| `status`, `lag` | always, also for a pipeline that failed or is dead: see `state` and `is_dead` | |
| `audit` | every record is accounted for | it is not; `findings` has the reasons |
| `dlq`, `repair`, `replay`, `backfill`, `pass`, `compact` | done | refused, or it failed in part |

Ended by `kill -9`, a command has the code 137. The next start continues with the batch that it was in.
"""
_TESTS: Final = """\
## Tests of pipelines

`kalda pipeline test orders.yml` runs the tests in `orders.test.yml`, as
[Test pipelines](../how-to/test-pipelines.md) shows. `kalda pipeline schema --tests` prints the keys as a
JSON schema. Contents of records and rows are as in JSON: `1`, `1.5`, `true` and `null` are no text, and other
words without quotes are. A date, a time and bytes of a row are written as text.
"""


def page() -> str:
    """Return the page."""
    parts = [_INTRODUCTION]
    for heading, section in SECTIONS:
        parts += _section(heading, section)
    parts.append(_TESTS)
    for heading, section in cases.SECTIONS:
        parts += _section(heading, section)
    parts.append(_EXIT_CODES)
    return "\n".join(parts)


def _section(heading: str, section: Section) -> Iterator[str]:
    yield f"## {heading}\n"
    yield f"{section.help}\n"
    yield "| key | takes | default | meaning |"
    yield "|---|---|---|---|"
    for key in section.keys:
        default = "required" if key.is_required else key.default or ""
        yield f"| `{key.name}` | {_cell(key.takes)} | {default} | {_cell(key.help)} |"
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    """Write the page into the directory that the command line names."""
    (Path(sys.argv[1]) / PAGE).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
