"""Options of S3 in one spelling, for the libraries of all formats."""

import pyarrow.fs as pafs
import pytest

from kalda.pipelines.tables.errors import TableSpecError
from kalda.pipelines.tables.object_store import arrow_filesystem, check_options, delta_options, is_s3

KEYS = {"s3.access-key-id": "a", "s3.secret-access-key": "b"}


def test_locations_of_object_stores() -> None:
    found = [is_s3(each) for each in ("s3://b/x", "s3a://b", "file:///s3", "/s3://x", "gs://b")]
    assert [True, True, False, False, False] == found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"s3.regoin": "x"}, r"options has s3.regoin, which is no option of S3. Did you mean s3.region\?"),
        ({"AWS_ENDPOINT": "x"}, r"Did you mean s3.endpoint\?"),
        ({"other": "x"}, "no option of S3. It takes s3.endpoint, s3.region"),
        ({"s3.anonymous": "yes"}, "options has s3.anonymous=yes; it takes true or false"),
        ({"s3.endpoint": "localhost:9000"}, r"it takes http://HOST:PORT or https://"),
        ({"s3.access-key-id": "a"}, "one of s3.access-key-id and s3.secret-access-key; it takes both"),
    ],
)
def test_wrong_options_are_refused_for_s3_alone(options: dict[str, str], message: str) -> None:
    check_options("file:///t", options)
    for action in (
        lambda: check_options("s3://b/t", options),
        lambda: arrow_filesystem(options),
        lambda: delta_options("s3a://b/t", options),
    ):
        with pytest.raises(TableSpecError, match=message):
            action()


def test_each_library_gets_its_own_names() -> None:
    options = {"s3.endpoint": "http://127.0.0.1:1", "s3.region": "r", **KEYS}
    assert {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_REGION": "r",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_ALLOW_HTTP": "true",
    } == delta_options("s3://b/t", options)
    assert {"AWS_SKIP_SIGNATURE": "true"} == delta_options("s3://b/t", {"s3.anonymous": "true"})
    assert delta_options("s3://b/t", {}) is None
    assert {"any": "x"} == delta_options("file:///t", {"any": "x"})
    found = arrow_filesystem(options | {"s3.force-virtual-addressing": "True"})
    assert isinstance(found, pafs.S3FileSystem)
    assert "r" == found.region
