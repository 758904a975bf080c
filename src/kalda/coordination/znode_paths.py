"""Which paths ZooKeeper takes. What Kafka keeps under which path is in `paths`."""

from kalda.coordination.errors import BadArgumentsError


def check_path(path: str) -> None:
    """Refuse what ZooKeeper refuses as a path.

    Raises:
        BadArgumentsError: says what is wrong with it.
    """
    if not path.startswith("/"):
        raise BadArgumentsError(f"path {path!r} must start with /", path)
    if path == "/":
        return
    for name in path[1:].split("/"):
        if not name:
            raise BadArgumentsError(f"path {path!r} has an empty name", path)
        if name in (".", ".."):
            raise BadArgumentsError(f"path {path!r} has a relative name", path)
    if not path.isascii() or not path.isprintable():
        for character in path:
            if _is_forbidden(ord(character)):
                raise BadArgumentsError(f"path {path!r} has the character {character!r}", path)


def _is_forbidden(code: int) -> bool:
    return code <= 0x1F or 0x7F <= code <= 0x9F or 0xD800 <= code <= 0xF8FF or 0xFFF0 <= code <= 0xFFFF
