"""The fixtures in test sessions of their own, as a user of pytest sees them."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import kalda.testing

pytest_plugins = ["pytester"]

INI = """
[pytest]
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""
WAIT_SECONDS = 60

# pytester forgets what a session in this process imports: a second import would make other classes.
LOADED = [getattr(kalda.testing, name) for name in kalda.testing.__all__]


@pytest.fixture(autouse=True)
def _settings(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytester.makeini(INI)
    # Where sessions in processes of their own put their clusters.
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))


def wait_removed(directory: Path) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while list(directory.iterdir()):
        assert time.monotonic() < deadline, list(directory.iterdir())
        time.sleep(0.01)


def test_a_test_has_topics_clients_and_assertions(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        def test_orders(kafka):
            topic = kafka.topic(partitions=3)
            kafka.producer().send(topic, b"1").result(60)
            assert next(kafka.consumer(topic, group_id="g")).value == b"1"
            kafka.assert_produced(topic, value="1")

        def test_again(kafka):
            assert kafka.admin().list_topics() == {}

        @pytest.mark.kafka(brokers=2)
        def test_own_brokers(kafka_cluster):
            kafka_cluster.topic("t")
            kafka_cluster.stop(1)
            assert kafka_cluster.running == [0]
        """
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=3)


def test_methods_of_unittest_have_the_fixtures_as_attributes(pytester: pytest.Pytester) -> None:
    """They cannot take arguments."""
    pytester.makepyfile(
        """
        import unittest
        import pytest

        @pytest.mark.usefixtures("kafka")
        class Orders(unittest.TestCase):
            def test_orders(self):
                self.kafka.producer().send(self.kafka.topic(), b"1").result(60)

        @pytest.mark.usefixtures("kafka_cluster")
        class AsynchronousOrders(unittest.IsolatedAsyncioTestCase):
            async def test_orders(self):
                topic = await self.kafka_cluster.aio.topic()
                producer = await self.kafka_cluster.aio.producer()
                await (await producer.send(topic, b"1"))
        """
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=2)


def test_asynchronous_clients_are_closed_on_their_loop(pytester: pytest.Pytester) -> None:
    """A client that is not closed is a ResourceWarning, which is an error here."""
    pytester.makepyfile(
        """
        import pytest

        async def orders(kafka):
            topic = await kafka.aio.topic()
            producer = await kafka.aio.producer()
            await (await producer.send(topic, b"1"))
            consumer = await kafka.aio.consumer(topic, group_id="g")
            assert (await anext(aiter(consumer))).value == b"1"
            admin = await kafka.aio.admin()
            assert [topic] == list(await admin.list_topics())

        @pytest.mark.asyncio
        async def test_asyncio(kafka):
            await orders(kafka)

        @pytest.mark.anyio
        @pytest.mark.parametrize("anyio_backend", ["asyncio"])
        async def test_anyio(kafka, anyio_backend):
            await orders(kafka)
        """
    )
    pytester.runpytest_inprocess("-W", "error::ResourceWarning").assert_outcomes(passed=2)


def test_the_mark_chooses_security_settings_and_release(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        pytestmark = pytest.mark.kafka(settings={"num.partitions": 5})

        @pytest.mark.kafka(security="sasl_ssl")
        def test_secured(kafka):
            assert kafka.client_config()["security.protocol"] == "SASL_SSL"
            kafka.producer().send(kafka.topic(), b"1").result(60)
            kafka.producer().send("created", b"1").result(60)
            assert len(kafka.producer().partitions_for("created")) == 5

        @pytest.mark.kafka(as_version="2.8")
        def test_release(kafka):
            versions = kafka.admin().describe_api_versions()
            assert {each.api_versions[1].highest for each in versions.values()} == {12}
        """
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=2)


def test_the_mark_plans_faults_that_no_other_test_meets(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        import kalda

        @pytest.mark.kafka(faults="produce:MESSAGE_TOO_LARGE*1")
        def test_refused(kafka):
            topic = kafka.topic()
            with pytest.raises(kalda.ClientError, match="MESSAGE_TOO_LARGE"):
                kafka.producer().send(topic, b"1").result(60)
            kafka.producer().send(topic, b"2").result(60)
            assert [b"2"] == [record.value for record in kafka.records(topic)]

        @pytest.mark.kafka(brokers=2, faults=["broker:kill@1"])
        def test_killed(kafka_cluster):
            kafka_cluster.wait_until(lambda: kafka_cluster.running == [0])

        def test_other(kafka):
            kafka.producer().send(kafka.topic(), b"1").result(60)
        """
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=3)


def test_a_wrong_mark_fails_its_test_with_the_reason_alone(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.kafka(brokres=3)
        def test_option(kafka): pass

        @pytest.mark.kafka(settings={"num.partitons": 3})
        def test_setting(kafka_cluster): pass

        @pytest.mark.kafka(as_version="9")
        def test_release(kafka): pass

        @pytest.mark.kafka(faults="prodce:NOT_LEADER")
        def test_faults(kafka): pass

        def test_right(kafka): pass
        """
    )
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(errors=4, passed=1)
    result.stdout.fnmatch_lines(
        [
            "*kafka has no option 'brokres', only brokers, *; did you mean 'brokers'?",
            "the cluster does not start: `num.partitons` is not a setting; did you mean `num.partitions`?",
            "the cluster does not start: `kalda.as.version`=9 is not allowed: *",
            "faults= of @pytest.mark.kafka: *prodce*",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")


def test_a_failed_test_shows_its_brokers(pytester: pytest.Pytester) -> None:
    """Their warnings are in that section, and not among what the application has logged."""
    pytester.makepyfile(
        """
        import logging

        def test_fails(kafka, caplog):
            topic = kafka.topic("orders")
            kafka.producer().send(topic, b"12", key=b"alice").result(60)
            kafka.assert_produced(topic, key="bob", within_s=0)

        class Warnings(logging.Handler):
            texts = []

            def emit(self, record):
                self.texts.append(record.getMessage())

        def test_own_brokers(kafka_cluster, caplog):
            logging.getLogger("kalda").addHandler(Warnings())
            kafka_cluster.kill_coordinator()
            kafka_cluster.wait_until(lambda: any("lost its" in text for text in Warnings.texts))
            logging.getLogger("shop").warning("no orders")
            assert [record.name for record in caplog.records] == []
        """
    )
    # In a process of its own: loggers of PySpark, if a test before made any, give handlers their JSON format.
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "E       AssertionError: no record of 'orders' has key='bob'",
            "E         orders-0@0 key=alice value=12",
            "E           the key is alice, expected 'bob'",
            "*- Kafka -*",
            "topic orders: 1 record",
            "  orders-0@0 key=alice value=12",
            "*Captured log call*",
            "WARNING  shop:*no orders",
            "*- Kafka -*",
            "warnings of the brokers:",
            "  WARNING kalda-broker-0: broker 0 lost its ZooKeeper connection*",
        ]
    )
    captured = result.stdout.str().partition("Captured log call")[2].partition("- Kafka -")[0]
    assert "ZooKeeper" not in captured


def test_golden_files_are_beside_the_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_shop="""
        def test_orders(kafka):
            topic = kafka.topic("orders")
            kafka.producer().send(topic, b'{"due": 12}', key=b"alice").result(60)
            kafka.snapshot(topic)
        """
    )
    pytester.runpytest_inprocess().assert_outcomes(failed=1)
    pytester.runpytest_inprocess("--kafka-update").assert_outcomes(passed=1)
    file = pytester.path / "snapshots/test_shop/test_orders.orders.json"
    assert '"due": 12' in file.read_text()
    pytester.runpytest_inprocess().assert_outcomes(passed=1)


def test_fixtures_of_wider_scopes_use_the_factory(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="module")
        def shop(kafka_factory):
            with kafka_factory.kafka(brokers=2) as kafka:
                kafka.topic("orders")
                yield kafka

        @pytest.fixture(scope="session")
        def brokers(kafka_factory):
            with kafka_factory.cluster() as cluster:
                yield cluster

        def test_one(shop):
            shop.producer().send("orders", b"1").result(60)

        def test_other(shop, brokers):
            shop.assert_produced("orders", value="1")
            assert brokers.admin().list_topics() == {}
        """
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=2)


def test_a_session_without_kafka_imports_no_broker(pytester: pytest.Pytester) -> None:
    """pytest imports the plug-in in every session on the machine."""
    pytester.makepyfile(
        """
        import sys

        def test_modules():
            names = [name for name in sys.modules if name.partition(".")[0] == "kalda"]
            assert sorted(names) == [
                "kalda", "kalda.testing", "kalda.testing.kafka_mark", "kalda.testing.pytest_plugin"
            ]
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_modules_of_kalda_are_imported_as_python_does(pytester: pytest.Pytester) -> None:
    """pytest rewrites assertions in all modules of a distribution with a plug-in, which takes 10 seconds."""
    pytester.makepyfile(
        """
        def test_loader(kafka):
            import kalda.testing.cluster
            assert type(kalda.testing.cluster.__loader__).__name__ == "SourceFileLoader"
        """
    )
    pytester.runpytest_subprocess("-p", "kalda").assert_outcomes(passed=1)


def test_a_fixture_of_the_same_name_hides_that_of_the_plug_in(pytester: pytest.Pytester) -> None:
    """Suites that have a fixture `kafka` already go on as before, without brokers in the background."""
    pytester.makepyfile(
        """
        import sys
        import pytest

        @pytest.fixture
        def kafka():
            return "mine"

        def test_mine(kafka):
            assert kafka == "mine"
            assert "kalda.testing.cluster" not in sys.modules
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_a_fixture_of_the_same_name_can_add_to_that_of_the_plug_in(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def kafka(kafka):
            kafka.topic("orders")
            return kafka

        def test_orders(kafka):
            kafka.producer().send("orders", b"1").result(60)
        """
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("options", "last"),
    [((), "raise KeyboardInterrupt"), (("-x",), "assert False"), (("-n", "2"), "os.kill(os.getpid(), 9)")],
    ids=["interrupt", "exit-first", "crash-of-a-worker"],
)
def test_no_end_of_a_session_leaves_anything(
    pytester: pytest.Pytester, tmp_path: Path, options: tuple[str, ...], last: str
) -> None:
    pytester.makepyfile(
        f"""
        import os
        import pytest

        @pytest.mark.parametrize("number", range(4))
        def test_ends(kafka, kafka_cluster, number):
            kafka.topic()
            if number == 2:
                {last}
        """
    )
    result = pytester.runpytest_subprocess(*options)
    assert 0 != result.ret
    wait_removed(tmp_path / "temporary")


def test_a_killed_session_leaves_nothing(pytester: pytest.Pytester, tmp_path: Path) -> None:
    """A job's time-out in continuous integration kills without asking."""
    pytester.makepyfile(
        """
        import os

        def test_ends(kafka):
            kafka.topic()
            assert os.listdir(os.environ["TMPDIR"])
            os.kill(os.getpid(), 9)
        """
    )
    code = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
        cwd=pytester.path,
        env={**os.environ},
        stdout=subprocess.DEVNULL,
        timeout=WAIT_SECONDS,
        check=False,
    ).returncode
    assert -9 == code
    wait_removed(tmp_path / "temporary")
