"""What `import kalda` offers, and what it must not cost."""

import subprocess
import sys

import pytest

import kalda


def test_every_public_name_can_be_had() -> None:
    for name in kalda.__all__:
        assert getattr(kalda, name) is not None, name
    assert set(kalda.__all__) <= set(dir(kalda))
    assert kalda.testing.Cluster is kalda.Cluster


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the data source needs PySpark; a star import must work without."""
    monkeypatch.setitem(sys.modules, "pyspark.sql.datasource", None)
    monkeypatch.delitem(sys.modules, "kalda.spark.datasource", raising=False)
    monkeypatch.delitem(vars(kalda), "KaldaDataSource", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"needs the package pyspark.*kalda\[spark\]"):
        kalda.KaldaDataSource  # noqa: B018
    assert "KaldaDataSource" not in kalda.__all__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'kalda' has no attribute 'Kluster'"):
        kalda.Kluster  # noqa: B018


def test_importing_kalda_loads_nothing_else() -> None:
    """It has to stay under 30 ms, and Spark's workers import it for each task."""
    code = "import sys; import kalda; print(*(name for name in sys.modules if name.startswith('kalda')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "kalda" == done.stdout.strip()
