import logging
from collections.abc import Iterator

import pytest

from kalda.broker.config.broker_loggers import check_level, describe_loggers, set_level
from kalda.common.errors import ApiError, ErrorCode
from tests.unit.broker.admin_fakes import AdminHarness
from tests.unit.broker.test_config_admin import change, described

LOGGER = 8
SET, DELETE, APPEND = 0, 1, 2
NAME = "kalda.tests.broker_loggers"


@pytest.fixture(autouse=True)
def restored_levels() -> Iterator[logging.Logger]:
    logger = logging.getLogger(NAME)
    level, root = logger.level, logging.root.level
    yield logger
    logger.setLevel(level)
    logging.root.setLevel(root)


@pytest.mark.parametrize(
    ("level", "name"),
    [
        (5, "TRACE"),
        (10, "DEBUG"),
        (20, "INFO"),
        (25, "INFO"),
        (30, "WARN"),
        (40, "ERROR"),
        (50, "FATAL"),
        (1, "TRACE"),
    ],
)
def test_levels_are_told_by_log4js_names(level: int, name: str) -> None:
    logging.getLogger(NAME).setLevel(level)

    [entry] = describe_loggers([NAME, "no.such.logger"])

    assert (NAME, name, 6) == (entry.name, entry.value, entry.source)


def test_a_logger_without_a_level_has_its_parents() -> None:
    set_level(NAME, None)
    set_level("root", "ERROR")

    assert ["ERROR", "ERROR"] == [entry.value for entry in describe_loggers(["root", NAME])]


@pytest.mark.parametrize(
    ("name", "level", "code"),
    [
        ("no.such.logger", "INFO", ErrorCode.INVALID_CONFIG),
        (NAME, "LOUD", ErrorCode.INVALID_CONFIG),
        (NAME, "info", ErrorCode.INVALID_CONFIG),
        ("root", None, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_set(name: str, level: str | None, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as caught:
        check_level(name, level)

    assert code is caught.value.code


async def test_levels_change_by_request(restored_levels: logging.Logger) -> None:
    harness = AdminHarness()

    assert ErrorCode.NONE is (await change(harness, LOGGER, "0", (NAME, SET, "DEBUG"), validate_only=True))[0]
    assert logging.DEBUG != restored_levels.level
    assert ErrorCode.NONE is (await change(harness, LOGGER, "0", (NAME, SET, "DEBUG")))[0]
    assert logging.DEBUG == restored_levels.level
    [entry] = described(harness, LOGGER, "0", NAME).configs
    assert ("DEBUG", 6, False) == (entry.value, entry.config_source, entry.read_only)
    assert ErrorCode.NONE is (await change(harness, LOGGER, "0", (NAME, DELETE, None)))[0]
    assert logging.NOTSET == restored_levels.level
    assert ErrorCode.INVALID_REQUEST is (await change(harness, LOGGER, "0", (NAME, APPEND, "DEBUG")))[0]
    assert ErrorCode.INVALID_REQUEST is (await change(harness, LOGGER, "1", (NAME, SET, "DEBUG")))[0]
    assert {} == harness.cluster.stored
