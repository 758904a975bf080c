"""Declares the settings of groups, each of which overrides a broker's setting for one group (KIP-848)."""

from typing import Final

from kalda.common.config_def import at_least
from kalda.common.settings import Settings, integer


class GroupOverrides(Settings):
    """The settings that a group can override."""

    consumer_assignment_interval_ms = integer(
        1000,
        "The least time between two target assignments of a consumer group; 0: each change of the group is "
        "assigned at once (KIP-1263).",
        at_least(0),
    )
    consumer_heartbeat_interval_ms = integer(
        5000, "Heartbeat interval that the members of a consumer group are given.", at_least(1)
    )
    consumer_session_timeout_ms = integer(
        45000, "Session timeout of the members of a consumer group.", at_least(1)
    )


GROUP_SYNONYMS: Final = {key.name: f"group.{key.name}" for key in GroupOverrides.definitions().values()}
"""The broker's setting that a group's setting overrides."""
