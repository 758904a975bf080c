"""Files of a table by path: what readers of the directory see, and locks between processes."""

import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kalda.pipelines.tables.errors import TableSpecError
from kalda.pipelines.tables.storage import TableStorage, open_filesystem


def storage_of(root: Path) -> TableStorage:
    return TableStorage(f"file://{root}/table/")


def test_files_are_written_listed_moved_and_deleted(tmp_path: Path) -> None:
    storage: TableStorage = pickle.loads(pickle.dumps(storage_of(tmp_path)))
    assert storage.read("a/b.json") is None
    assert [] == list(storage.list("")) == list(storage.list_visible())
    storage.replace("a/b.json", b"one")
    storage.replace("a/b.json", b"two")
    assert b"two" == storage.read("a/b.json")
    assert [("a/b.json", 3)] == [(found.path, found.size_bytes) for found in storage.list("a")]
    assert storage.move("a/b.json", "c/d/e.json")
    assert not storage.move("a/b.json", "c/d/e.json")
    assert (False, True) == (storage.exists("a/b.json"), storage.exists("c/d"))
    assert storage.delete("c/d/e.json")
    assert not storage.delete("c/d/e.json")
    storage.delete_directory("c")
    storage.delete_directory("c")
    assert not storage.exists("c")


def test_a_failed_replacement_keeps_the_file_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = storage_of(tmp_path)
    storage.replace("a.json", b"one")

    def refused(source: str, target: str) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.replace", refused)
    with pytest.raises(OSError, match="Input/output"):
        storage.replace("a.json", b"two")
    assert b"one" == storage.read("a.json")
    assert ["a.json"] == [found.path for found in storage.list("")]


def test_hidden_names_are_not_for_readers(tmp_path: Path) -> None:
    storage = storage_of(tmp_path)
    shown = ("x.parquet", "day=1/x.parquet", "day=1/k=_/x.parquet")
    hidden = ("_x.parquet", ".x.parquet", "_kalda/x.parquet", "day=1/.tmp/x.parquet", "day=1/_x.parquet")
    for path in (*shown, *hidden):
        storage.replace(path, b"x")
    assert sorted(shown) == sorted(found.path for found in storage.list_visible())


def test_a_lock_keeps_others_out_until_it_is_released(tmp_path: Path) -> None:
    """Two processes that rename at once could replace a file that the other has joined."""
    storage = storage_of(tmp_path)
    order: list[str] = []
    waits = threading.Event()

    def other() -> None:
        waits.set()
        with storage.locked("_kalda/lock"):
            order.append("other")

    with storage.locked("_kalda/lock"):
        thread = threading.Thread(target=other)
        thread.start()
        assert waits.wait(30)
        order.append("first")
    thread.join(30)
    assert ["first", "other"] == order


def test_shared_locks_stand_beside_each_other_and_need_no_file(tmp_path: Path) -> None:
    storage = storage_of(tmp_path)
    with storage.locked("_kalda/lock", is_shared=True):
        assert not storage.exists("_kalda/lock"), "a reader may not be able to write"
    with storage.locked("_kalda/lock"):
        pass
    with storage.locked("_kalda/lock", is_shared=True), storage.locked("_kalda/lock", is_shared=True):
        pass


def test_the_end_of_a_process_releases_its_lock(tmp_path: Path) -> None:
    """A killed driver must leave nothing that the next one waits for."""
    storage = storage_of(tmp_path)
    script = (
        "import os, signal, sys\n"
        "from kalda.pipelines.tables.storage import TableStorage\n"
        "with TableStorage(sys.argv[1]).locked('_kalda/lock'):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, storage.location], check=False)
    assert -9 == done.returncode
    assert storage.exists("_kalda/lock")
    with storage.locked("_kalda/lock"):
        pass


def test_a_lock_in_memory_is_none(tmp_path: Path) -> None:
    """An object store has no locks; one writer is assumed there."""
    storage = TableStorage("memory://bucket/table", {"skip_instance_cache": "true"})
    assert not storage.is_local
    with storage.locked("_kalda/lock"), storage.locked("_kalda/lock"):
        storage.replace("x.parquet", b"x")
    assert b"x" == storage.read("x.parquet")
    assert ["x.parquet"] == [found.path for found in storage.list_visible()]


def test_locations_are_opened_by_their_scheme(tmp_path: Path) -> None:
    for location in (f"{tmp_path}/t", f"file:{tmp_path}/t", f"file://{tmp_path}/t"):
        assert f"{tmp_path}/t" == open_filesystem(location, {})[1].rstrip("/")
    with pytest.raises(TableSpecError, match="nope://x cannot be reached"):
        open_filesystem("nope://x", {})
