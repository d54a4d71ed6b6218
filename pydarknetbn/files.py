"""Writes files whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["write_atomically"]


def write_atomically(path: str | os.PathLike[str], write: Callable[[BinaryIO], Any]) -> None:
    """Writes beside the target, flushes to disk and renames: the target is the old file or the new one, never half of it.

    What processes left beside it that were ended while they wrote is removed.

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
    _remove_leftovers(target)
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


def _remove_leftovers(target: Path) -> None:
    """Unfinished files for that target whose process, or thread of this one, is not there any more."""
    pattern = re.compile(re.escape(f".{target.name}.tmp-") + r"([0-9]+)-([0-9]+)")
    with contextlib.suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            found = pattern.fullmatch(entry.name)
            if found and not _is_at_work(int(found[1]), int(found[2])):
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)  # noqa: PTH108 a path as scandir gives it


def _is_at_work(process: int, thread: int) -> bool:
    if process == os.getpid():
        return thread in {each.ident for each in threading.enumerate()} - {threading.get_ident()}
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True
