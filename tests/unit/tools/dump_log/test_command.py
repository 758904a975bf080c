from pathlib import Path

import pytest

from kalda.command.errors import ToolError
from kalda.tools.dump_log.command import _files


def test_a_directory_without_log_files_is_an_error(tmp_path: Path) -> None:
    """The command printed nothing and ended with 0, as if the log were in order."""
    (tmp_path / "notes.txt").write_text("none")
    with pytest.raises(ToolError, match="has no files to dump; name the directory of a partition"):
        _files([str(tmp_path)])
