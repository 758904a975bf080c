"""Resolves the names in a pipeline file: tables to URIs, clusters, the catalog, the schema registry."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kalda.pipelines.spec.model import Cluster

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
STORAGE_SCHEMES: Final = ("file", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
"""The file systems that Arrow knows."""
_TABLE_NAME: Final = re.compile(r"[^\W.][\w-]*(?:\.[^\W.][\w-]*)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Locations:
    """What names in a file refer to."""

    directory: Path
    """The directory of the file, where relative paths begin."""
    warehouse: str
    catalog: Mapping[str, str]
    registry: Mapping[str, str]
    clusters: Mapping[str, Cluster]

    def table(self, name: str) -> str | None:
        """Return the URI of a table, or None for a name that is neither a URI nor a dotted name.

        `lake.orders` is ``<warehouse>/lake/orders``; a path with a slash is relative to the file.
        """
        if "/" in name:
            return to_uri(name, self.directory)
        if _TABLE_NAME.fullmatch(name) is None:
            return None
        return f"{self.warehouse}/{name.replace('.', '/')}"


def refused_storage(uri: str) -> str | None:
    """Return the allowed kinds of location if `uri` is not one of them, else None; connects to nothing."""
    scheme, _, path = uri.partition("://")
    if scheme not in STORAGE_SCHEMES:
        return f"a directory, or a URI with {', '.join(STORAGE_SCHEMES)}"
    if scheme == "file":
        place = Path(path)
        nearest = next(each for each in (place, *place.parents) if each.exists())
        if not nearest.is_dir():
            return f"a directory; {nearest} is a file"
    return None


def to_uri(text: str, directory: Path) -> str:
    """Return a URI for a URI or a path.

    >>> to_uri("state", Path("/srv/pipelines")), to_uri("s3://lake/x/", Path("/"))
    ('file:///srv/pipelines/state', 's3://lake/x')
    """
    text = text.rstrip("/") or "/"
    if _SCHEME.match(text):
        return text
    return f"file://{(directory / Path(text).expanduser()).absolute()}"
