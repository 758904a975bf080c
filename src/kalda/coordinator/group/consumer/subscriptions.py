"""What a group subscribes to, before and after a member's change, and whether that changes its epoch."""

from collections.abc import Mapping

from kalda.coordinator.group.consumer.consumer_group import ConsumerGroup
from kalda.coordinator.group.consumer.member import Member, TopicMetadata
from kalda.coordinator.group.consumer.topics import TopicsView, topics_of

__all__ = ["subscribed_topics"]


def subscribed_topics(
    group: ConsumerGroup, topics: TopicsView, *, without: Member | None = None, member: Member | None = None
) -> Mapping[str, TopicMetadata]:
    """The topics that the group subscribes to and that exist now, if one member goes and one comes."""
    names = group.subscribed_names(without=without, member=member)
    return {
        name: TopicMetadata((topic.topic_id, topic.partition_count))
        for name, topic in topics_of(topics, names).items()
    }
