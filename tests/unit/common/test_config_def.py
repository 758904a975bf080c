import pytest

from kalda.common.config_def import (
    NON_EMPTY,
    ConfigDef,
    ConfigError,
    ConfigKey,
    ConfigType,
    ConfigValue,
    Validator,
    at_least,
    between,
    list_of,
    matches,
    one_of,
)


def key(
    config_type: ConfigType, validator: Validator | None = None, default: ConfigValue = None
) -> ConfigKey:
    return ConfigKey(
        name="some.setting", type=config_type, default=default, documentation="", validator=validator
    )


@pytest.mark.parametrize(
    ("config_type", "text", "value"),
    [
        (ConfigType.BOOLEAN, "true", True),
        (ConfigType.BOOLEAN, " FALSE ", False),
        (ConfigType.INT, "-2147483648", -(2**31)),
        (ConfigType.INT, "+7", 7),
        (ConfigType.INT, "0012", 12),
        (ConfigType.SHORT, "32767", 32767),
        (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigType.DOUBLE, "0.5", 0.5),
        (ConfigType.DOUBLE, "1.7976931348623157E308", 1.7976931348623157e308),
        (ConfigType.DOUBLE, "3", 3.0),
        (ConfigType.LIST, "a, b ,c", ("a", "b", "c")),
        (ConfigType.LIST, "", ()),
        (ConfigType.STRING, "  padded ", "padded"),
        (ConfigType.PASSWORD, "secret", "secret"),
    ],
)
def test_values_are_read_as_kafka_reads_them(config_type: ConfigType, text: str, value: ConfigValue) -> None:
    assert value == key(config_type).parse(text)


@pytest.mark.parametrize(
    ("config_type", "text"),
    [
        (ConfigType.BOOLEAN, "yes"),
        (ConfigType.BOOLEAN, ""),
        (ConfigType.INT, "2147483648"),
        (ConfigType.INT, "1.0"),
        (ConfigType.INT, "1_000"),
        (ConfigType.INT, "٣"),
        (ConfigType.INT, ""),
        (ConfigType.SHORT, "32768"),
        (ConfigType.LONG, "9223372036854775808"),
        (ConfigType.LONG, "1" * 5000),
        (ConfigType.DOUBLE, "nan"),
        (ConfigType.DOUBLE, "half"),
    ],
)
def test_a_value_of_another_type_is_refused(config_type: ConfigType, text: str) -> None:
    """Also what Python's int() would take but Kafka's tools would not."""
    with pytest.raises(ConfigError, match=r"`some\.setting`=.* is not allowed: it takes "):
        key(config_type).parse(text)


@pytest.mark.parametrize(
    ("config_type", "validator", "good", "bad", "allowed"),
    [
        (ConfigType.INT, at_least(1), "1", "0", "an int, at least 1"),
        (ConfigType.INT, between(1, 17), "17", "18", "an int, 1 to 17"),
        (ConfigType.DOUBLE, between(0, 1), "0.5", "1.1", "a double, 0 to 1"),
        (ConfigType.STRING, one_of("a", "b"), "a", "A", "a string, one of a, b"),
        (ConfigType.LIST, list_of("a", "b"), "a,b", "a,c", "a comma-separated list, a list of a, b"),
        (ConfigType.STRING, NON_EMPTY, "x", " ", "a string, a value that is not empty"),
        (
            ConfigType.LIST,
            matches("[0-9]+:[0-9]+", "pairs"),
            "1:2,3:4",
            "1:2,3",
            "a comma-separated list, pairs",
        ),
    ],
)
def test_a_validator_decides_and_the_error_says_what_is_allowed(
    config_type: ConfigType, validator: Validator, good: str, bad: str, allowed: str
) -> None:
    key(config_type, validator).parse(good)

    with pytest.raises(ConfigError) as caught:
        key(config_type, validator).parse(bad)

    assert f"`some.setting`={bad} is not allowed: it takes {allowed}" == str(caught.value)
    assert "some.setting" == caught.value.name


def test_a_password_is_not_shown_in_the_error() -> None:
    with pytest.raises(ConfigError) as caught:
        key(ConfigType.PASSWORD, one_of("x")).parse("hunter2")

    assert "hunter2" not in str(caught.value)
    assert "[hidden]" in str(caught.value)


def test_null_is_refused_unless_the_default_is_null() -> None:
    assert key(ConfigType.INT).parse(None) is None
    with pytest.raises(ConfigError, match="null"):
        key(ConfigType.INT, default=5).parse(None)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (True, "true"),
        (7, "7"),
        (("a", "b"), "a,b"),
        ((), ""),
        (0.5, "0.5"),
        (0.05, "0.05"),
        (3.0, "3.0"),
        (0.0, "0.0"),
        (1e7, "1.0E7"),
        (0.0001, "1.0E-4"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_values_are_written_as_java_writes_them(value: ConfigValue, text: str | None) -> None:
    assert text == key(ConfigType.STRING).format(value)


def test_an_unknown_setting_is_told_with_the_nearest_name() -> None:
    definitions = ConfigDef(
        ConfigKey(name=name, type=ConfigType.INT, default=1, documentation="")
        for name in ("log.retention.hours", "num.partitions")
    )

    with pytest.raises(ConfigError) as caught:
        definitions.parse({"log.retention.hour": "1"})

    assert "`log.retention.hour` is not a setting; did you mean `log.retention.hours`?" == str(caught.value)
    with pytest.raises(ConfigError, match=r"^`zzz` is not a setting$"):
        definitions.key("zzz")


def test_a_set_of_definitions_reads_only_what_is_given() -> None:
    one = ConfigKey(name="one", type=ConfigType.INT, default=1, documentation="")
    two = ConfigKey(name="two", type=ConfigType.INT, default=2, documentation="")
    definitions = ConfigDef([one, two])

    assert {"two": 5} == definitions.parse({"two": "5"})
    assert {"one": 1, "two": 2} == definitions.defaults
    assert [one, two] == list(definitions)
    assert "one" in definitions
    assert 2 == len(definitions)
