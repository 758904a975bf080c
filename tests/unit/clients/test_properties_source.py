from pathlib import Path
from typing import Any

import pytest

from kalda.clients.config.properties_source import properties_of
from kalda.clients.errors import ClientConfigError


def test_a_mapping_stays_as_it_is() -> None:
    assert {"linger.ms": 5} == properties_of({"linger.ms": 5})


def test_a_path_is_the_path_of_a_properties_file(tmp_path: Path) -> None:
    """A `client.properties` of Kafka's scripts works as it stands."""
    path = tmp_path / "client.properties"
    path.write_text("# settings\nbootstrap.servers=127.0.0.1:9092\nlinger.ms : 5\n")

    assert {"bootstrap.servers": "127.0.0.1:9092", "linger.ms": "5"} == properties_of(path)
    assert properties_of(path) == properties_of(str(path))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClientConfigError, match=r"nowhere\.properties cannot be read"):
        properties_of(tmp_path / "nowhere.properties")


@pytest.mark.parametrize("source", [5, None, [("linger.ms", "5")]])
def test_anything_else_is_refused(source: Any) -> None:
    with pytest.raises(ClientConfigError, match="takes a mapping with Kafka's names, or the path"):
        properties_of(source)
