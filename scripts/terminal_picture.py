"""Draws docs/assets/terminal.svg, the picture of a terminal session with a cluster.

Run it as ``.venv/bin/python scripts/terminal_picture.py``, with kcat installed and ports 9092 to 9094 free. A
shell runs every command in the picture, and the picture shows the output of that run below the command.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

REPOSITORY: Final = Path(__file__).resolve().parents[1]
PICTURE: Final = REPOSITORY / "docs/assets/terminal.svg"
COLUMNS: Final = 100
START: Final = "kalda start --brokers 3 --set default.replication.factor=3 2>log &"
STEPS: Final = (
    "seq 100000 | kcat -b 127.0.0.1 -P -t numbers -z zstd -X acks=all",
    "kcat -b 127.0.0.1 -C -t numbers -e -q | wc -l",
    "kcat -b 127.0.0.1 -L -t numbers | tail -1",
    "kill -9 $(cat kalda-data/broker-LEADER/pid) && sleep 1",
    "kcat -b 127.0.0.1:OTHER -L -t numbers | tail -1",
    "kcat -b 127.0.0.1:OTHER -C -t numbers -e -q | wc -l",
)


def main() -> None:
    """Run the session and write the picture."""
    console = Console(record=True, width=COLUMNS, force_terminal=True, file=sys.stderr)
    with tempfile.TemporaryDirectory() as directory:
        shell = Path(directory)
        path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
        cluster = subprocess.Popen(
            ["bash", "-c", START.removesuffix(" &").replace("kalda", "exec kalda", 1)],
            cwd=shell,
            env={"PATH": path},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert cluster.stdout is not None
            ready = cluster.stdout.readline()
            assert ready, (shell / "log").read_text()
            _show(console, START, ready)
            leader: int | None = None
            for step in STEPS:
                step = step.replace("LEADER", str(leader)).replace(
                    "OTHER", str(9092 + ((leader or 0) + 1) % 3)
                )
                run = subprocess.run(
                    ["bash", "-ec", step], cwd=shell, env={"PATH": path}, capture_output=True, text=True
                )
                assert run.returncode == 0, (step, run.stderr)
                _show(console, step, run.stdout)
                if found := re.search(r"leader (\d)", run.stdout):
                    leader = int(found[1]) if leader is None else leader
        finally:
            cluster.terminate()
            cluster.wait(60)
    # Remove rich's web font, so that the picture loads nothing.
    template = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    template = re.sub(r"<!--.*?-->", "", template)
    PICTURE.write_text(console.export_svg(title="Kalda", code_format=template, unique_id="kalda") + "\n")


def _show(console: Console, command: str, output: str) -> None:
    console.print(Text.assemble(("$ ", "green"), (command, "bold")))
    if output.strip():
        console.print(Text("\n".join(line.strip() for line in output.splitlines())))


if __name__ == "__main__":
    main()
