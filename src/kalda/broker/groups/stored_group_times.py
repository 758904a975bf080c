"""Implements `GroupTimes`, the times of consumer groups, with the settings in force."""

from kalda.broker.config.stored_group_settings import StoredGroupSettings


class StoredGroupTimes(StoredGroupSettings):
    """The times of consumer groups."""

    def session_timeout_ms(self, group_id: str) -> int:
        """Return how long a member stays in a group without a heartbeat, in milliseconds."""
        return self.integer("consumer.session.timeout.ms", group_id)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Return the heartbeat interval that the members of a group are given, in milliseconds."""
        return self.integer("consumer.heartbeat.interval.ms", group_id)

    def assignment_interval_ms(self, group_id: str) -> int:
        """Return the least time between two target assignments of a group, in milliseconds (KIP-1263)."""
        return self.integer("consumer.assignment.interval.ms", group_id)
