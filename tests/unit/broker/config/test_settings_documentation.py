from pathlib import Path

from kalda.settings.definitions import BROKER_CONFIG, TOPIC_CONFIG
from kalda.settings.reference import (
    BROKER_PAGE,
    GROUP_PAGE,
    TOPIC_PAGE,
    broker_page,
    topic_page,
    write_pages,
)

REFERENCE = Path(__file__).parents[4] / "docs" / "reference"


def test_the_committed_pages_are_current(tmp_path: Path) -> None:
    """Else: python -m kalda.settings.reference docs/reference"""
    write_pages(tmp_path)

    for page in (BROKER_PAGE, TOPIC_PAGE, GROUP_PAGE):
        assert (tmp_path / page).read_text() == (REFERENCE / page).read_text(), page


def test_every_setting_that_is_not_internal_is_listed_once() -> None:
    broker, topic = broker_page(), topic_page()

    for definitions, page in ((BROKER_CONFIG, broker), (TOPIC_CONFIG, topic)):
        for key in definitions:
            assert (0 if key.internal else 1) == page.count(f"\n| `{key.name}` |"), key.name
            assert key.documentation.endswith("."), key.name


def test_what_is_marked_as_in_effect_exists() -> None:
    assert "| `num.partitions` | `1` | an int, at least 1 | read-only | **yes** |" in broker_page()
    assert (
        "| `num.io.threads` | `8` | an int, at least 1 | cluster-wide | no: configurable thread"
        in broker_page()
    )
    refused = "| refused: OCSP |"
    assert f"| `zookeeper.ssl.ocsp.enable` | `false` | true or false | read-only {refused}" in broker_page()
