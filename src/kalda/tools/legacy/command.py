"""The command `kalda legacy` with all its tools; each import adds one."""

from kalda.tools.legacy import mirror_maker, producer_performance, producer_shell
from kalda.tools.legacy.group import legacy

__all__ = ["legacy", "mirror_maker", "producer_performance", "producer_shell"]
