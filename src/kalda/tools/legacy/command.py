"""The command `kalda legacy` with all its tools; each import adds one."""

from kalda.tools.legacy import (
    consumer_offset_checker,
    consumer_performance,
    consumer_shell,
    dump_log_segments,
    mirror_maker,
    producer_performance,
    producer_shell,
    simple_consumer_performance,
    zk_offsets,
)
from kalda.tools.legacy.group import legacy

__all__ = [
    "consumer_offset_checker",
    "consumer_performance",
    "consumer_shell",
    "dump_log_segments",
    "legacy",
    "mirror_maker",
    "producer_performance",
    "producer_shell",
    "simple_consumer_performance",
    "zk_offsets",
]
