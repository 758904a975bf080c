"""Apache Kafka's own tools and clients against `kalda start --secure`, with the file that it writes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.apache_kafka import NotAvailableError
from kalda.testing import KaldaProcess
from tests.compat.java_releases import JavaRelease

ACLS = "kafka.admin.AclCommand"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"


@pytest.fixture(scope="module", params=["3.9.1", "4.1.1", "4.4.0"])
def release(request: pytest.FixtureRequest) -> JavaRelease:
    try:
        return JavaRelease(request.param)
    except NotAvailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def kalda(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KaldaProcess]:
    directory = tmp_path_factory.mktemp("secured") / "data"
    with KaldaProcess(directory, brokers=2, options=["--secure"]) as process:
        yield process


@pytest.mark.timeout(300)
def test_the_file_of_a_secure_start_is_all_that_javas_tools_need(
    release: JavaRelease, kalda: KaldaProcess, tmp_path: Path
) -> None:
    server = ("--bootstrap-server", kalda.bootstrap)
    mine = str(kalda.directory / "client.properties")
    topic, user = f"t-{release.name}", f"alice-{release.name}"
    acls = "org.apache.kafka.tools.AclCommand" if release.number >= (4,) else ACLS
    produce = f"{'org.apache.kafka' if release.number >= (4,) else 'kafka'}.tools.ConsoleProducer"
    described = (*server, "--command-config", mine)

    release.run(TOPICS, *described, "--create", "--topic", topic, "--partitions", "2")
    producing = (*server, "--topic", topic, release.config_option("producer"), mine)
    release.run(produce, *producing, text="one\ntwo\nthree\n")
    read = release.run(
        CONSOLE,
        *(*server, "--topic", topic, release.config_option("consumer"), mine, "--from-beginning"),
        *("--group", "g", "--max-messages", "3"),
    )
    assert {"one", "two", "three"} == set(read.split()[:3])
    assert topic in release.run(GROUPS, *described, "--describe", "--group", "g")

    release.run(
        release.config_command,
        *(*described, "--alter", "--entity-type", "users", "--entity-name", user),
        *("--add-config", "SCRAM-SHA-512=[iterations=4096,password=alice-secret]"),
    )
    theirs = tmp_path / "alice.properties"
    lines = [
        line
        for line in (kalda.directory / "client.properties").read_text().splitlines()
        if not line.startswith("sasl.jaas.config")
    ]
    lines.append(
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{user}" password="alice-secret";'
    )
    theirs.write_text("\n".join(lines) + "\n")
    listing = (TOPICS, *server, "--command-config", str(theirs), "--list")
    assert topic not in release.run(*listing)
    release.run(
        acls,
        *(*described, "--add", "--allow-principal", f"User:{user}"),
        *("--operation", "Read", "--topic", topic),
    )
    assert topic in release.run(*listing)
    listed = release.run(acls, *described, "--list", "--topic", topic)
    assert f"principal=User:{user}, host=*, operation=READ, permissionType=ALLOW" in listed
