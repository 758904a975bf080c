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
from kalda.spark.source.group_commits import LagCommits
from kalda.spark.source.group_offsets import GroupOffsets, OffsetStore
from kalda.spark.source.log_history import LogHistory, check_reincarnations, check_truncations
from kalda.spark.source.offsets import PartitionOffsets
from kalda.spark.source.options import SourceOptions

logger: Final = logging.getLogger(__name__)

FLUSH_SECONDS: Final = 3.0
"""How long the end of an `availableNow` run waits for its last commit: the process may be killed after it."""


class StreamProgress:
    """What one run of a query knows of the past of its logs."""

    def __init__(
        self, options: SourceOptions, discovery: Discovery, store: OffsetStore | None = None
    ) -> None:
        self._options: Final = options
        self._discovery: Final = discovery
        self._history: Final = LogHistory()
        self._is_resumed = False
        self._commits: LagCommits | None = None
        if options.lag_commit:
            # Not the store of `discovery`: the commits run on a thread of their own.
            given = store if store is not None else GroupOffsets(options.connection, options.group_id)
            self._commits = LagCommits(given, options.group_id)

    def started(self, found: Found) -> None:
        """Take the topics of a query that starts without a checkpoint; there is no past to check."""
        self._is_resumed = True
        self._history.saw_topics(found.topic_ids)

    def resumed(self, known: PartitionOffsets, topic_ids: Mapping[str, UUID], found: Found) -> None:
        """Check the topics that the offsets of a checkpoint belong to; the first call of a run counts.

        Args:
            known: The offsets of the checkpoint.
            topic_ids: The ids that it has with them.
            found: The topics now.

        Raises:
            DataLossError: a topic was created again since, and `failOnDataLoss` is true.
        """
        if self._is_resumed:
            return
        self._is_resumed = True
        self._history.remember_topics(topic_ids)
        if self._options.lag_commit:
            try:
                committed = self._discovery.committed()
            except ClientError as error:
                logger.warning(
                    "group %s cannot be read: %s. Whether a log was cut since the last run is not checked",
                    self._options.group_id,
                    error,
                )
            else:
                self._history.remember({each: commit for each, commit in committed.items() if each in known})
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
        self._commits.offer(self._history.commits(offsets))
        if is_last and not self._commits.flush(FLUSH_SECONDS):
            logger.warning("the last progress is not committed to group %s in time", self._options.group_id)

    def close(self) -> None:
        """Commit what waits, and end the background thread."""
        if self._commits is not None:
            self._commits.close()
