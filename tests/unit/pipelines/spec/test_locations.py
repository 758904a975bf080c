"""Where the names of a pipeline file are."""

from pathlib import Path

import pytest

from kalda.pipelines.spec.locations import Locations, refused_storage, to_uri

LOCATIONS = Locations(
    directory=Path("/srv/p"), warehouse="s3://lake/tables", catalog={}, registry={}, clusters={}
)


@pytest.mark.parametrize(
    ("name", "uri"),
    [
        ("orders", "s3://lake/tables/orders"),
        ("lake.orders", "s3://lake/tables/lake/orders"),
        ("größen.a-b", "s3://lake/tables/größen/a-b"),
        ("./orders", "file:///srv/p/orders"),
        ("/data/orders/", "file:///data/orders"),
        ("s3a://b/orders/", "s3a://b/orders"),
        ("file:/data/x", "file:/data/x"),
        ("a..b", None),
        (".a", None),
        ("a.", None),
        ("a b", None),
        ("..", None),
    ],
)
def test_a_table_is_a_name_below_the_warehouse_or_a_place(name: str, uri: str | None) -> None:
    """A name of dots would be another directory than its own."""
    assert uri == LOCATIONS.table(name)


def test_paths_are_relative_to_the_file() -> None:
    assert "file:///srv/p/state" == to_uri("state", Path("/srv/p"))
    assert f"file://{Path.home()}/x" == to_uri("~/x", Path("/srv"))


def test_storage_is_a_directory_or_an_object_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert refused_storage(f"file://{tmp_path}/new/deep") is None
    assert refused_storage("s3://bucket/x") is None
    assert f"a directory; {tmp_path}/file is a file" == refused_storage(f"file://{tmp_path}/file/below")
    assert "a directory, or a URI with file, s3" in (refused_storage("http://x/y") or "")
