"""Plans of faults in processes: at the start, and by the API that exists only where a setting asks for it."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import kalda
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.testing import Cluster, KaldaProcess, KaldaProcessError, Security
from tests.integration.tools.commands import Commands

API = {"kalda.faults.api.enable": "true"}


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KaldaProcess]:
    directory = tmp_path_factory.mktemp("faults")
    plan = directory / "plan.yml"
    plan.write_text("faults:\n  - produce:NOT_LEADER*2,topic=orders\n", "utf-8")
    with KaldaProcess(directory / "data", settings=API, options=["--faults", str(plan)]) as process:
        yield process


def test_plan_is_in_force_from_the_start_and_replaced_at_run_time(process: KaldaProcess) -> None:
    tool = Commands(process.bootstrap)
    shown = tool("faults", "show", "--json").json["brokers"]
    plan = "produce:NOT_LEADER_OR_FOLLOWER*2,topic=orders"
    assert [{"broker": 0, "plan": plan, "applied": [0], "error": None}] == shown
    with kalda.Admin(bootstrap_servers=process.bootstrap) as admin:
        admin.create_topics([kalda.NewTopic("orders", 1, 1)])
        with kalda.Producer(bootstrap_servers=process.bootstrap) as producer:
            producer.send("orders", value=b"x").result(60)
        assert (2,) == admin.describe_faults()[0].applied
        set_ = tool("faults", "set", "fetch:delay=5ms; clock:jump=-1h@0", "--json").json["brokers"]
        assert "fetch:delay=5ms; clock:jump=-1h@0" == set_[0]["plan"]
        with kalda.Producer(bootstrap_servers=process.bootstrap) as producer:
            producer.send("orders", value=b"y").result(60)
        tool("faults", "clear")
        assert "" == admin.describe_faults()[0].plan
    assert [] == tool("faults", "show").rows


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ("produc:drop", "the target 'produc' is no API"),
        ("broker:power@0", "broker:power@0: only `kalda simulate` has the fault broker:power"),
        ("link:cut@clients-0", "link:cut@clients-0: only `kalda simulate` has links of clients"),
        ("broker:kill@coordinator", "a broker is not the coordination server"),
        ("session:expire@0", "the coordination server is in the broker's own process"),
        ("link:cut@0-coordinator", "the coordination server is in the broker's own process"),
        ("broker:kill@0,for=1s", "a broker that has ended cannot start itself"),
    ],
)
def test_wrong_plan_changes_nothing(process: KaldaProcess, plan: str, expected: str) -> None:
    tool = Commands(process.bootstrap)
    tool("faults", "set", "fetch:delay=1ms")
    done = tool.run("faults", "set", plan)
    assert expected in done.stderr
    assert done.code in (1, 2)
    assert ["0", "fetch:delay=1ms", "0"] == tool("faults", "show").rows[0]
    tool("faults", "clear")


def test_plan_comes_from_a_file_or_the_command_line(process: KaldaProcess, tmp_path: Path) -> None:
    tool = Commands(process.bootstrap)
    plan = tmp_path / "plan.yml"
    plan.write_text("faults: ['heartbeat:drop*1']", "utf-8")
    assert "heartbeat:drop*1" in tool("faults", "set", "--file", plan).stdout
    assert "either a plan or --file" in tool.run("faults", "set").stderr
    tool("faults", "clear")


def test_broker_kills_itself(tmp_path: Path) -> None:
    process = KaldaProcess(tmp_path / "data", brokers=2, settings=API)
    process.start()
    try:
        with kalda.Admin(bootstrap_servers=process.bootstrap) as admin:
            admin.alter_faults("broker:kill@1")
        for _ in range(1200):
            if "broker 1 ended" in process.log():
                break
            threading.Event().wait(0.05)
        assert "broker 1 ended with exit code -9" in process.log()
    finally:
        with pytest.raises(KaldaProcessError, match="exit code 1, not 0"):
            process.stop()


def test_broker_pauses_itself(process: KaldaProcess) -> None:
    """A process that is suspended cannot resume itself: another does."""
    with kalda.Admin(bootstrap_servers=process.bootstrap) as admin:
        admin.alter_faults("broker:pause@0,for=300ms; fetch:delay=1ms")
        assert "broker:pause@0,for=300ms; fetch:delay=1ms" == admin.describe_faults()[0].plan
        admin.alter_faults("")


def test_disk_of_a_single_broker_is_full_for_a_while(process: KaldaProcess) -> None:
    """The coordination server of the same process has its own files."""
    with kalda.Admin(bootstrap_servers=process.bootstrap) as admin:
        admin.create_topics([kalda.NewTopic("full", 1, 1)])
        admin.alter_faults("disk:full@0,for=500ms")
        with kalda.Producer(bootstrap_servers=process.bootstrap) as producer:
            producer.send("full", value=b"x").result(60)


def test_links_and_sessions_have_faults_from_the_start(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yml"
    plan.write_text("faults: ['link:delay=1ms@0-1', 'session:expire@1']", "utf-8")
    process = KaldaProcess(tmp_path / "data", brokers=2, options=["--faults", str(plan)])
    with process:
        for _ in range(1200):
            if "has expired" in process.log():
                break
            threading.Event().wait(0.05)
        assert "has expired" in process.log()


def test_start_with_a_wrong_plan_fails_with_the_reason(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yml"
    plan.write_text("faults: ['produce:droop']", "utf-8")
    with (
        pytest.raises(KaldaProcessError, match=r"kalda.faults.file=.*plan.yml: fault 1: 'produce:droop'"),
        KaldaProcess(tmp_path / "data", options=["--faults", str(plan)]),
    ):
        pass


def test_brokers_without_the_setting_have_no_such_api() -> None:
    with Cluster(brokers=1) as cluster, kalda.Admin(bootstrap_servers=cluster.bootstrap) as admin:
        assert ApiKey.ALTER_FAULTS not in admin.describe_api_versions()[0].api_versions
        with pytest.raises(kalda.ClientError, match="AlterFaults"):
            admin.describe_faults()


def test_only_who_may_alter_the_cluster_may_use_it() -> None:
    security = Security(users=["alice"], protocol="SASL_PLAINTEXT", mechanism="PLAIN")
    with Cluster(brokers=1, settings=API, security=security) as cluster:
        with kalda.Admin.from_config(cluster.client_config()) as admin:
            assert "fetch:drop*1" == admin.alter_faults("fetch:drop*1")[0].plan
            with pytest.raises(kalda.ClientError, match="this broker is no process of its own"):
                admin.alter_faults("broker:kill@0")
        with kalda.Admin.from_config(cluster.client_config("alice")) as alice:
            refused = [
                alice.describe_faults(outcomes=True),
                alice.alter_faults("fetch:drop", outcomes=True),
            ]
        codes = [each.errors[0].code for each in refused]
        assert [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 2 == codes
