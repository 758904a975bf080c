"""Whatever the text, a properties file is read or refused with our error; what is written reads back."""

from hypothesis import given
from hypothesis import strategies as st

from kalda.common.config_def import ConfigError, ConfigKey, ConfigType
from kalda.common.properties import PropertiesError, parse_properties
from kalda.settings.definitions import BROKER_CONFIG, TOPIC_CONFIG

KEYS = [*BROKER_CONFIG, *TOPIC_CONFIG]
latin_1 = st.text(st.characters(max_codepoint=255))


def written(name: str, value: str) -> str:
    """Write an entry so that Java would read it back: everything unusual as an escape."""

    def escaped(text: str) -> str:
        return "".join(c if c.isascii() and c.isalnum() else f"\\u{ord(c):04x}" for c in text)

    return f"{escaped(name)}={escaped(value)}"


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    refusal = ""
    try:
        parse_properties(text)
    except PropertiesError as error:
        refusal = str(error)

    assert not refusal or refusal.startswith("line ")


@given(st.dictionaries(latin_1.filter(bool), latin_1, max_size=8))
def test_what_is_written_reads_back(properties: dict[str, str]) -> None:
    text = "\n".join(written(name, value) for name, value in properties.items())

    assert properties == parse_properties(text)


@given(st.sampled_from(KEYS), st.text())
def test_any_value_is_read_or_refused_by_name(key: ConfigKey, text: str) -> None:
    refusal: ConfigError | None = None
    try:
        value = key.parse(text)
    except ConfigError as error:
        refusal = error

    if refusal is None:
        assert value == key.parse(key.format(value))
    else:
        assert key.name == refusal.name
        assert f"`{key.name}`" in str(refusal)


@given(st.sampled_from(KEYS))
def test_defaults_are_allowed_values(key: ConfigKey) -> None:
    """Of what a value looks like; Kafka itself has lists that are empty by default and must not be set so."""
    text = key.format(key.default)

    assert text is None or key.default == key.parse(text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_survive_being_written(value: float) -> None:
    key = ConfigKey(name="a", type=ConfigType.DOUBLE, default=0.0, documentation="")

    assert value == key.parse(key.format(value))
