"""Spark over every listener with each mechanism that the tests of the gate leave out."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.secured_broker import SCRAM, SecuredBroker, Way, ways
from tests.spark.conftest import spark as spark
from tests.spark.test_spark_security import write_and_read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", ways("PLAIN", *SCRAM, "OAUTHBEARER", "token"), ids=str)
def test_spark_is_the_user_that_it_logs_in_as(
    secured: SecuredBroker, way: Way, spark: "SparkSession", tmp_path: Path
) -> None:
    write_and_read(secured, way, spark, tmp_path)
