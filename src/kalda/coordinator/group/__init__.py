"""The group coordinator: groups and their committed offsets, kept in ``__consumer_offsets``.

`classic` holds the classic protocol, `consumer` the protocol of KIP-848; the modules here hold what both
share: committed offsets, the shard that replays records, and `GroupCoordinator`, which request handlers call.
Nothing here writes to a log or sends a response itself: `kalda.coordinator.runtime` does.
"""
