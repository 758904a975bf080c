"""Groups that hold members with our consumer and with Apache Kafka's own."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.apache_kafka import NotAvailableError, maven_jars
from kalda.testing import KaldaProcess
from tests.integration.groups.conftest import SETTINGS, fill, make_topic
from tests.integration.groups.members import Group

__all__ = ["make_topic"]

JAVA_PROGRAM = Path(__file__).parent / "java" / "GroupMember.java"
VALUES = 300
VERSIONS = ("4.1.0", "4.4.0")

MakeTopic = Callable[..., str]


@pytest.fixture(scope="module", params=VERSIONS)
def java(request: pytest.FixtureRequest) -> list[str]:
    """The command of a member with Java's consumer."""
    try:
        jars = maven_jars(
            f"kafka-clients-{request.param}",
            (f"org.apache.kafka:kafka-clients:{request.param}", "org.slf4j:slf4j-nop:1.7.36"),
        )
    except NotAvailableError as error:
        pytest.skip(str(error))
    return ["java", "-cp", f"{jars}/*", str(JAVA_PROGRAM)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with the short delays of the tests of groups."""
    with KaldaProcess(tmp_path_factory.mktemp(uuid.uuid4().hex) / "data", settings=SETTINGS) as process:
        yield process.bootstrap


@pytest.mark.parametrize(
    ("protocol", "assignor"),
    [
        ("classic", "range"),
        ("classic", "roundrobin"),
        ("classic", "sticky"),
        ("classic", "cooperative-sticky"),
        ("consumer", "uniform"),
    ],
)
def test_java_and_our_members_share_a_group(
    broker: str, java: list[str], make_topic: MakeTopic, protocol: str, assignor: str
) -> None:
    """Leaders change between the languages; each record is processed and committed once."""
    topic = make_topic(broker)
    options = {"protocol": protocol, "assignor": assignor, "session_ms": 10_000}
    with Group(broker, topic, 6, **options) as group:
        group.join(client="kalda")
        group.wait_balanced()
        group.wait_values(f"value-{number}" for number in range(VALUES))
        group.join(client="java", command=java)
        group.join(client="kalda")
        group.wait_balanced()
        first = group.members[0]
        group.take_out(first)
        first.leave()
        group.wait_balanced()
        group.join(client="java", command=java)
        group.wait_balanced()
        fill(broker, topic, range(VALUES, VALUES * 2))
        group.wait_values(f"value-{number}" for number in range(VALUES * 2))
        assert {1} == set(group.values().values())
        for member in list(group.members):
            group.take_out(member)
            member.leave()
            if group.members:
                group.wait_balanced()
