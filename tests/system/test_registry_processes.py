"""Several processes of the registry on one cluster, and what happens when they are killed."""

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil

from kalda import Admin, NewTopic
from kalda.testing import KaldaProcess, ProcessCluster
from tests.http_server import HttpProcess, http_process

SHORT_SESSION = {"kafkagroup.session.timeout.ms": "6000", "kafkagroup.heartbeat.interval.ms": "500"}


def schema(number: int) -> dict[str, str]:
    return {"schema": f'{{"type":"record","name":"R{number}","fields":[]}}'}


def wait_for(client: httpx.Client, method: str, path: str, **more: object) -> httpx.Response:
    """Repeat a request while no process is elected."""
    while True:
        response = client.request(method, path, **more)  # type: ignore[arg-type]  # as given
        if response.status_code < 500:
            return response


def test_a_process_that_is_killed_in_the_middle_of_registrations_gives_no_id_twice(tmp_path: Path) -> None:
    """What was answered stays, and what was not answered takes no id from another schema."""
    with (
        ProcessCluster(tmp_path / "cluster", brokers=1) as cluster,
        http_process(cluster, tmp_path / "http", SHORT_SESSION) as process,
    ):
        answered: dict[int, int] = {}
        lock = threading.Lock()
        numbers = iter(range(100_000))

        def register_until_it_dies() -> None:
            with httpx.Client(base_url=process.url, timeout=60) as client:
                while True:
                    with lock:
                        number = next(numbers)
                    try:
                        response = client.post(f"/subjects/s{number}/versions", json=schema(number))
                    except httpx.HTTPError:
                        return
                    if response.status_code == 200:
                        with lock:
                            answered[number] = response.json()["id"]

        for _ in range(3):
            before = len(answered)
            with ThreadPoolExecutor(4) as workers:
                running = [workers.submit(register_until_it_dies) for _ in range(4)]
                while len(answered) < before + 25:
                    assert not all(each.done() for each in running), process.log()
                process.kill()
            process.start()

        with httpx.Client(base_url=process.url, timeout=60) as client:
            wait_for(client, "POST", "/subjects/last/versions", json=schema(200_000))
            assert len(answered) == len(set(answered.values()))
            for number, schema_id in answered.items():
                assert schema(number)["schema"] == client.get(f"/schemas/ids/{schema_id}/schema").text
            listed = client.get("/schemas?limit=1000").json()
            by_id = {each["id"]: each["schema"] for each in listed}
            assert len(by_id) == len({each["schema"] for each in listed})


def test_another_process_takes_over_when_the_writer_is_killed(tmp_path: Path) -> None:
    with (
        ProcessCluster(tmp_path / "cluster", brokers=1) as cluster,
        http_process(cluster, tmp_path / "one", SHORT_SESSION) as first,
        http_process(cluster, tmp_path / "two", SHORT_SESSION) as second,
        httpx.Client(base_url=first.url, timeout=60) as one,
        httpx.Client(base_url=second.url, timeout=60) as two,
    ):
        assert 1 == wait_for(one, "POST", "/subjects/a/versions", json=schema(1)).json()["id"]
        # The second one forwards, and its own state has the change when it answers.
        assert 2 == wait_for(two, "POST", "/subjects/b/versions", json=schema(2)).json()["id"]
        assert ["a", "b"] == two.get("/subjects").json()
        assert (
            409
            == two.post(
                "/subjects/a/versions",
                json={"schema": '"int"'},
            ).status_code
        )

        first.kill()

        taken_over = wait_for(two, "POST", "/subjects/c/versions", json=schema(3))
        assert 3 == taken_over.json()["id"], second.log()
        first.start()
        assert [1] == one.get("/subjects/c/versions").json()
        assert 4 == wait_for(one, "POST", "/subjects/d/versions", json=schema(4)).json()["id"]


def test_a_topic_that_is_not_fit_for_a_registry_is_refused(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path / "cluster", brokers=1) as cluster:
        with Admin.from_config(cluster.client_config()) as admin:
            admin.create_topics(
                [
                    NewTopic("three", 3, 1, config={"cleanup.policy": "compact"}),
                    NewTopic("kept", 1, 1, config={"cleanup.policy": "delete"}),
                ]
            )
        for topic, words in (("three", "has 3 partitions"), ("kept", "cleanup.policy=delete")):
            process = HttpProcess(cluster, tmp_path / topic, {"kafkastore.topic": topic})
            process.start_nowait()
            assert process.process is not None
            assert 2 == process.process.wait()
            assert process.process.stdout is not None
            process.process.stdout.close()
            assert words in process.log()
            assert "Traceback" not in process.log()


def test_start_serves_http_as_a_child_that_comes_back(tmp_path: Path) -> None:
    with KaldaProcess(tmp_path / "data", options=("--http", "0")) as started:
        assert started.http
        with httpx.Client(base_url=f"http://{started.http}", timeout=60) as client:
            assert 1 == wait_for(client, "POST", "/subjects/a/versions", json=schema(1)).json()["id"]
            (child,) = [each for each in psutil.Process(started.pid).children() if "http" in each.cmdline()]

            child.kill()
            child.wait()

            # Connecting is tried again and again, with a pause that doubles.
            transport = httpx.HTTPTransport(retries=20)
            with httpx.Client(base_url=f"http://{started.http}", timeout=60, transport=transport) as again:
                assert ["a"] == again.get("/subjects").json()
    assert not psutil.pid_exists(child.pid)


def test_a_writer_that_was_paused_does_not_write_under_its_old_lease(tmp_path: Path) -> None:
    """Its machine slept: another process was elected meanwhile, and gave the next id."""
    with (
        ProcessCluster(tmp_path / "cluster", brokers=1) as cluster,
        http_process(cluster, tmp_path / "one", SHORT_SESSION) as first,
        http_process(cluster, tmp_path / "two", SHORT_SESSION) as second,
        httpx.Client(base_url=first.url, timeout=60) as one,
        httpx.Client(base_url=second.url, timeout=60) as two,
        ThreadPoolExecutor(1) as worker,
    ):
        assert 1 == wait_for(one, "POST", "/subjects/a/versions", json=schema(1)).json()["id"]
        assert first.process is not None
        first.process.send_signal(signal.SIGSTOP)
        waiting = worker.submit(wait_for, one, "POST", "/subjects/c/versions", json=schema(3))

        assert 2 == wait_for(two, "POST", "/subjects/b/versions", json=schema(2)).json()["id"]
        first.process.send_signal(signal.SIGCONT)

        assert 3 == waiting.result().json()["id"]
        assert ["a", "b", "c"] == two.get("/subjects").json()
