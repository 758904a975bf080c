"""Builds what records the cluster's history."""

from kalda.broker.context.broker_context import BrokerContext
from kalda.broker.history.history_recorder import HistoryRecorder
from kalda.broker.history.history_topic import HistoryTopic
from kalda.broker.internal_topics.internal_topics import InternalTopics
from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.topics.topic_admin import TopicAdmin
from kalda.broker.topics.topic_names import CLUSTER_HISTORY_TOPIC
from kalda.controller.driver import ControllerDriver
from kalda.coordinator.runtime.coordinator_runtime import RuntimeConfig
from kalda.records.compression import Compression
from kalda.settings.stored_passwords import is_secret_setting


def build_history(
    context: BrokerContext,
    cache: MetadataCache,
    topic_admin: TopicAdmin,
    internal_topics: InternalTopics,
    controller: ControllerDriver,
) -> HistoryRecorder | None:
    """Make the recorder and the runtime of ``__cluster_history``; None where the broker records nothing."""
    recording = context.recording
    if recording is None:
        return None
    recorder = HistoryRecorder(
        context.cluster_store,
        cache,
        HistoryTopic(context.broker_id, context.config, cache, topic_admin, recording),
        context.clock,
        context.runtime.random,
        is_secret_setting,
    )
    recording.controller_epoch = lambda: controller.epoch
    recording.on_note = recorder.on_note
    config = RuntimeConfig(CLUSTER_HISTORY_TOPIC, compression=Compression.ZSTD)
    internal_topics.add(recorder.new_shard, config, context.metrics)
    return recorder
