"""Writes files whole or not at all."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["write_atomically"]


def write_atomically(path: str | os.PathLike[str], write: Callable[[BinaryIO], Any]) -> None:
    """Writes beside the target, flushes to disk and renames: the target is the old file or the new one, never half of it.

    Args:
        path: the target; an old file's permissions are kept, and through a link the file that it names is written.
        write: called with the stream to write to.

    Raises:
        OSError: the folder is not there or not writable, the disk is full, or the target is a directory.
    """
    target = Path(path).resolve()
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {target.parent}; make it first")
    if target.exists() and not target.is_file():  # a pipe or a device is written to, not replaced
        with target.open("wb") as stream:
            write(stream)
        return
    beside = target.with_name(f".{target.name}.tmp-{os.getpid()}-{threading.get_ident()}")
    try:
        with beside.open("wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        if target.exists():
            beside.chmod(target.stat().st_mode & 0o777)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
