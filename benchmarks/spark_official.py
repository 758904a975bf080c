"""Spark's own Kafka connector: its jars, and a virtual environment with the PySpark that it was built for.

The connector was not published for the PySpark that this project uses, so it runs on PySpark 4.2.0. Jars and
environment are fetched once into `.cache/` and never committed.
"""

import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

from benchmarks.apache_kafka import CACHE_DIRECTORY, NotAvailableError, maven_jars

OFFICIAL_SPARK_VERSION: Final = "4.2.0"
_INSTALL_TIMEOUT_SECONDS: Final = 1_800.0
# The token provider was not published for 4.2.0; the connector needs it only to load.
_CONNECTOR_COORDINATES: Final = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{OFFICIAL_SPARK_VERSION}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.0",
)


def official_connector() -> tuple[Path, list[str]]:
    """Return a Python with the PySpark of Spark's own connector, and the connector's jars.

    Raises:
        NotAvailableError: Maven is missing, or one of them could not be fetched.
    """
    jars = maven_jars(f"spark-kafka-{OFFICIAL_SPARK_VERSION}", _CONNECTOR_COORDINATES, transitive=False)
    return pyspark_python(OFFICIAL_SPARK_VERSION), [str(each) for each in sorted(jars.glob("*.jar"))]


def pyspark_python(version: str) -> Path:
    """Return the Python of an environment that has this release of PySpark, installed if need be.

    Raises:
        NotAvailableError: it could not be installed.
    """
    directory = CACHE_DIRECTORY / f"pyspark-{version}"
    python = directory / "bin" / "python"
    stamp = directory / ".installed"
    if stamp.exists():
        return python
    print(f"installing pyspark {version} into {directory} (once, 450 MB)", file=sys.stderr)
    venv.create(directory, with_pip=True, clear=True)
    done = subprocess.run(
        [str(python), "-m", "pip", "install", "--quiet", f"pyspark=={version}"],
        capture_output=True,
        text=True,
        timeout=_INSTALL_TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        last_line = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise NotAvailableError(f"pyspark {version} could not be installed: {last_line}")
    stamp.touch()
    return python
