"""Maps the znodes of a cluster to keys in etcd.

Layout below the prefix of the cluster (``/kalda`` unless the address names another one)::

    /kalda/tree/DEPTH/PATH        a znode; its value is the znode's data, byte by byte
    /kalda/sessions/LEASE         one key for each session, under its lease, with as many changes as it wrote
    /kalda/counters/PATH          the next number of a sequential znode below PATH

Example: the children of ``/brokers/ids`` are the keys that begin with ``/kalda/tree/3/brokers/ids/``. The
depth in front of the path makes them one range, with nothing of deeper levels in it.
"""

from collections.abc import Sequence
from typing import Final

from kalda.etcd.messages import KeyValue, OpResponse, RangeResponse, range_op


class Keys:
    """The keys of one cluster."""

    def __init__(self, prefix: str) -> None:
        self.prefix: Final = prefix
        self.first: Final = prefix.encode() + b"/"
        """With `end`: everything of the cluster."""
        self.end: Final = prefix.encode() + b"0"  # the character behind "/"
        self._tree: Final = self.first + b"tree/"
        self._sessions: Final = self.first + b"sessions/"
        self._counters: Final = self.first + b"counters"

    def znode(self, path: str) -> bytes:
        """Return the key of a znode."""
        depth = 0 if path == "/" else path.count("/")
        return b"%b%d%b" % (self._tree, depth, path.encode())

    def children(self, path: str) -> tuple[bytes, bytes]:
        """Return the range of the keys of a znode's children."""
        depth = 1 if path == "/" else path.count("/") + 1
        start = b"%b%d%b" % (self._tree, depth, path.encode().rstrip(b"/"))
        return start + b"/", start + b"0"

    def session(self, lease: int) -> bytes:
        """Return the key of a session."""
        return self._sessions + b"%x" % lease

    def counter(self, parent: str) -> bytes:
        """Return the key of the counter for sequential znodes below a path."""
        return self._counters + parent.encode()

    def path_of(self, key: bytes) -> str | None:
        """Return the path of a znode's key, and None for another key."""
        if not key.startswith(self._tree):
            return None
        slash = key.find(b"/", len(self._tree))
        return key[slash:].decode(errors="replace") if slash >= 0 else None

    def reads(self, path: str, *, with_data: bool, revision: int = 0) -> list[bytes]:
        """Return the operations that read a znode, and count its children."""
        first, end = self.children(path)
        return [
            range_op(self.znode(path), keys_only=not with_data, revision=revision),
            range_op(first, end, count_only=True, revision=revision),
        ]


def parent_of(path: str) -> str:
    """Return the path of a znode's parent; that of ``/`` is ``/``."""
    return path.rpartition("/")[0] or "/"


def node_of(responses: Sequence[OpResponse]) -> tuple[KeyValue | None, int]:
    """Return what `Keys.reads` found: the znode's key, and the number of its children."""
    node, children = responses[0], responses[1]
    assert isinstance(node, RangeResponse), f"{node!r} is no response of a read"
    assert isinstance(children, RangeResponse), f"{children!r} is no response of a read"
    return (node.kvs[0] if node.kvs else None), children.count
