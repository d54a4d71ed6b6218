"""Every exception that the package raises: each is also the builtin that a caller would guess.

A message is one sentence that names the place, what was expected, what was found and what to do.
"""

from __future__ import annotations

__all__ = [
    "CfgError",
    "CheckpointError",
    "DarknetError",
    "DarknetWarning",
    "DeviceError",
    "DtypeError",
    "DumpError",
    "ImageError",
    "MissingExtraError",
    "NumericsError",
    "ShapeError",
    "StateError",
    "SyncError",
    "UnsupportedError",
    "WeightsError",
]


class DarknetError(Exception):
    """Base of all errors of this package."""


class DarknetWarning(UserWarning):
    """Something was read in one of several possible ways; `strict=True` makes it an error."""


class CfgError(DarknetError, ValueError):
    """A `.cfg` text that cannot mean a network.

    Args:
        message: what is wrong, without the place.
        file: name of the text, as the caller gave it.
        line: 1-based line in it.
        key: the option concerned.
    """

    def __init__(self, message: str, *, file: str = "", line: int | None = None, key: str | None = None) -> None:
        self.file, self.line, self.key = file, line, key
        place = ":".join(str(part) for part in (file, line) if part not in ("", None))
        super().__init__(f"{place}: {message}" if place else message)


class WeightsError(DarknetError, ValueError):
    """Bytes that do not fit the network, or are no weights at all.

    Args:
        message: what is wrong, with the name of the file.
        offset: byte offset in the file where it shows.
        layer: index of the layer concerned.
        array: Darknet's name of the array concerned.
    """

    def __init__(self, message: str, *, offset: int | None = None, layer: int | None = None, array: str | None = None) -> None:
        self.offset, self.layer, self.array = offset, layer, array
        super().__init__(message)


class ShapeError(DarknetError, ValueError):
    """An array of another shape or memory layout than the call takes."""


class DtypeError(DarknetError, TypeError):
    """An array of another element type than the call takes."""


class ImageError(DarknetError, ValueError):
    """A picture that cannot be read, or a way of fitting one that does not exist."""


class DumpError(DarknetError, ValueError):
    """A file of activations or a golden bundle that cannot be read, or not be made."""


class CheckpointError(DarknetError, ValueError):
    """A checkpoint that cannot be read or written, or belongs to another network."""


class NumericsError(DarknetError, ArithmeticError):
    """A computation that has no finite meaning, such as the variance of one value."""


class StateError(DarknetError, RuntimeError):
    """A call that needs another call before it."""


class UnsupportedError(DarknetError, NotImplementedError):
    """Known to a fork, not computed by this package."""


class DeviceError(DarknetError, RuntimeError):
    """A device that is not there or failed."""


class SyncError(DarknetError, RuntimeError):
    """Ranks that do not agree or do not answer."""


class MissingExtraError(DarknetError, ImportError):
    """An optional dependency that is not installed; the message names the extra."""
