from kalda.broker.config.describe import ConfigEntry, describe_broker, describe_broker_default, describe_topic
from kalda.common.config_values import ConfigSource
from kalda.settings import BrokerConfig


def only(entries: list[ConfigEntry]) -> ConfigEntry:
    [entry] = entries
    return entry


def sources(entry: ConfigEntry) -> list[tuple[str, str | None, ConfigSource]]:
    return [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms]


def test_every_source_of_a_topic_setting_is_told_in_order_of_precedence() -> None:
    config = BrokerConfig.from_properties({"message.max.bytes": "4"})
    config.apply_dynamic({"message.max.bytes": "2"}, {"message.max.bytes": "3"})

    entry = only(describe_topic(config, {"max.message.bytes": "1"}, ["max.message.bytes"]))

    assert ("1", ConfigSource.DYNAMIC_TOPIC_CONFIG) == (entry.value, entry.source)
    assert [
        ("max.message.bytes", "1", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ("message.max.bytes", "2", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("message.max.bytes", "3", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("message.max.bytes", "4", ConfigSource.STATIC_BROKER_CONFIG),
        ("message.max.bytes", "1048588", ConfigSource.DEFAULT_CONFIG),
    ] == sources(entry)


def test_the_first_source_that_knows_the_setting_is_its_source() -> None:
    config = BrokerConfig.from_properties({"log.retention.ms": "5000"})

    topic = only(describe_topic(config, {}, ["retention.ms"]))
    assert ("5000", ConfigSource.STATIC_BROKER_CONFIG) == (topic.value, topic.source)
    config.apply_dynamic({}, {"log.retention.ms": "6000"})
    topic = only(describe_topic(config, {}, ["retention.ms"]))
    assert ("6000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG) == (topic.value, topic.source)
    hours = only(describe_broker(config, ["log.retention.hours"]))
    assert ("168", ConfigSource.DEFAULT_CONFIG) == (hours.value, hours.source)


def test_secrets_are_never_shown() -> None:
    config = BrokerConfig.from_properties(
        {"password.encoder.secret": "hunter2", "rsm.config.secret": "hunter2"}
    )

    for name in ("password.encoder.secret", "rsm.config.secret"):
        entry = only(describe_broker(config, [name]))
        assert (None, True) == (entry.value, entry.is_sensitive)
        assert [None] == [synonym.value for synonym in entry.synonyms]
        assert ConfigSource.STATIC_BROKER_CONFIG is entry.source


def test_only_existing_names_are_selected_and_an_empty_list_selects_all() -> None:
    config = BrokerConfig.from_properties({})

    assert ["num.partitions"] == [e.name for e in describe_broker(config, ["num.partitions", "no.such"])]
    assert len(describe_broker(config)) == len(describe_broker(config, []))
    assert 41 == len(describe_topic(config, {}))


def test_internal_settings_are_listed_only_where_set() -> None:
    def names(config: BrokerConfig) -> set[str]:
        return {entry.name for entry in describe_broker(config)}

    assert "log.initial.task.delay.ms" not in names(BrokerConfig.from_properties({}))
    assert "log.initial.task.delay.ms" in names(
        BrokerConfig.from_properties({"log.initial.task.delay.ms": "1"})
    )


def test_the_dynamic_default_lists_what_was_changed_for_all_brokers() -> None:
    config = BrokerConfig.from_properties({"log.segment.bytes": "100"})
    config.apply_dynamic({"log.segment.bytes": "50"}, {"log.segment.bytes": "60"})

    entry = only(describe_broker_default(config))

    assert ("60", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG) == (entry.value, entry.source)
    assert [("log.segment.bytes", "60", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)] == sources(entry)


def test_a_listeners_setting_has_the_plain_one_as_synonym() -> None:
    config = BrokerConfig.from_properties(
        {"listener.name.inside.num.network.threads": "10", "num.network.threads": "20"}
    )

    entry = only(describe_broker(config, ["listener.name.inside.num.network.threads"]))

    assert "10" == entry.value
    assert [
        ("listener.name.inside.num.network.threads", "10", ConfigSource.STATIC_BROKER_CONFIG),
        ("num.network.threads", "20", ConfigSource.STATIC_BROKER_CONFIG),
        ("num.network.threads", "3", ConfigSource.DEFAULT_CONFIG),
    ] == sources(entry)


def test_descriptions_follow_changes_of_the_broker() -> None:
    """They are kept between requests."""
    config = BrokerConfig.from_properties({})

    def value() -> str | None:
        return only(describe_topic(config, {}, ["segment.bytes"])).value

    assert "1073741824" == value()
    config.apply_dynamic({"log.segment.bytes": "100"}, {})
    assert "100" == value()
    config.apply_dynamic({}, {"log.segment.bytes": "100"})
    [entry] = describe_topic(config, {}, ["segment.bytes"])
    assert ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG is entry.source
