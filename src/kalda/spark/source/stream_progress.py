"""Keeps the history and the committed progress of a streaming query, on the driver.

It is the part of the stream reader that looks at what lies behind a start offset: the topic and the log it
belongs to, and its commit to the consumer group. It plans nothing.
"""

import logging
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from kalda.clients.errors import ClientError
from kalda.spark.source.discovery import Discovery, Found
from kalda.spark.source.group_offsets import GroupOffsets, OffsetStore
from kalda.spark.source.lag_commits import LagCommits
from kalda.spark.source.log_history import LogHistory, check_reincarnations, check_truncations
from kalda.spark.source.offsets import PartitionOffsets
from kalda.spark.source.options import SourceOptions
from kalda.spark.source.topic_ids import TopicIds, TopicIdStore

logger: Final = logging.getLogger(__name__)

FLUSH_SECONDS: Final = 3.0
"""How long the end of an `availableNow` run waits for its last commit: the process may be killed after it."""


class StreamProgress:
    """What one run of a query knows of the past of its logs."""

    def __init__(
        self,
        options: SourceOptions,
        discovery: Discovery,
        store: OffsetStore | None = None,
        topic_ids: TopicIdStore | None = None,
    ) -> None:
        self._options: Final = options
        self._discovery: Final = discovery
        self._history: Final = LogHistory()
        self._is_resumed = False
        self._topic_ids: Final = topic_ids or TopicIds(options.connection, options.group_id)
        self._commits: LagCommits | None = None
        if options.lag_commit:
            # Not the store of `discovery`: the commits run on a thread of their own.
            given = store if store is not None else GroupOffsets(options.connection, options.group_id)
            self._commits = LagCommits(given, self._topic_ids, options.group_id)

    def started(self, found: Found) -> None:
        """Take the topics of a query that starts without a checkpoint; there is no past to check."""
        self._is_resumed = True
        self._history.saw_topics(found.topic_ids)
        if self._commits is not None:
            self._commits.offer({}, found.topic_ids)

    def resumed(self, known: PartitionOffsets, found: Found) -> None:
        """Check the topics that the offsets of a checkpoint belong to; the first call of a run counts.

        Raises:
            DataLossError: a topic was created again since, and `failOnDataLoss` is true.
        """
        if self._is_resumed:
            return
        self._is_resumed = True
        if self._options.lag_commit:
            self._remember(known)
        self.check_topics(found.topic_ids)

    def topic_id(self, topic: str) -> UUID:
        """Return the id of a topic as it was looked up last; zero if it is not known."""
        return self._history.topic_id(topic)

    def check_topics(self, topic_ids: Mapping[str, UUID]) -> None:
        """Compare the present ids of the topics with the former ones.

        Raises:
            DataLossError: a topic was created again, and `failOnDataLoss` is true.
        """
        former = self._history.saw_topics(topic_ids)
        check_reincarnations(former, topic_ids, fail=self._options.fail_on_data_loss)

    def saw_ends(self, known: PartitionOffsets, ends: PartitionOffsets) -> None:
        """Check that the logs still hold what was read up to `known`, then take their present ends.

        Raises:
            DataLossError: a log was truncated, and `failOnDataLoss` is true.
        """
        epochs = self._discovery.end_epochs
        to_check = self._history.epochs_to_check(
            {each: known[each] for each in known if each in ends}, epochs
        )
        if to_check:
            check_truncations(
                known, self._discovery.epoch_ends(to_check), fail=self._options.fail_on_data_loss
            )
        self._history.saw_ends(ends, epochs)

    def commit(self, offsets: PartitionOffsets, *, is_last: bool) -> None:
        """Commit progress in the background; wait a moment for the commit that ends a run."""
        if self._commits is None or not offsets:
            return
        self._commits.offer(self._history.commits(offsets), self._history.topic_ids_of(offsets))
        if is_last and not self._commits.flush(FLUSH_SECONDS):
            logger.warning("the last progress is not committed to group %s in time", self._options.group_id)

    def close(self) -> None:
        """Commit what waits, and end the background thread."""
        if self._commits is not None:
            self._commits.close()

    def _remember(self, known: PartitionOffsets) -> None:
        """Take what the last run kept about the topics of a checkpoint."""
        topics = {each.topic for each in known}
        try:
            committed = self._discovery.committed()
            # A commit is never older than the ids that were written before it.
            self._history.remember({each: commit for each, commit in committed.items() if each in known})
            kept = self._topic_ids.read()
            self._history.remember_topics({topic: kept[topic] for topic in topics & kept.keys()})
        except ClientError as error:
            logger.warning(
                "what the last run kept for group %s cannot be read: %s. Whether a topic was deleted and "
                "created again since is not checked",
                self._options.group_id,
                error,
            )
