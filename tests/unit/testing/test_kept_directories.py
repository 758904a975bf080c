"""What clusters leave behind is copied where the environment asks for it, and only then."""

from pathlib import Path

import pytest

from kalda.testing.kept_directories import ORIGIN_FILE, VARIABLE, keep


def test_the_data_of_a_cluster_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, target = tmp_path / "cluster", tmp_path / "kept"
    for name in (
        "broker-0/orders-0/x.log",
        "broker-0/meta.properties",
        "zookeeper/version-2/log.1",
        "other/x",
    ):
        path = cluster / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    monkeypatch.delenv(VARIABLE, raising=False)
    keep(cluster)
    monkeypatch.setenv(VARIABLE, str(target))
    keep(cluster)
    keep(cluster / "other")
    keep(tmp_path / "nothing")
    (copy,) = target.iterdir()
    assert {"broker-0", "zookeeper", ORIGIN_FILE} == {each.name for each in copy.iterdir()}
    assert "broker-0/orders-0/x.log" == (copy / "broker-0/orders-0/x.log").read_text()
    assert "test_the_data_of_a_cluster_is_copied" in (copy / ORIGIN_FILE).read_text()
