"""Defines the entries of a znode's access list, as ZooKeeper sends and stores them."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Acl:
    """One entry of an access list: permission bits, scheme, id."""

    permissions: int
    scheme: str
    id: str


READ_BIT: Final = 1
ALL_BITS: Final = 31
