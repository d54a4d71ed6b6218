"""Optional packages: imported where they are used, and named with their extra where they are missing."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from .errors import MissingExtraError

__all__ = ["has_package", "import_extra"]


def import_extra(package: str, extra: str) -> Any:
    """The package.

    Raises:
        MissingExtraError: it is not installed; the message says how it gets installed.
    """
    try:
        return import_module(package)
    except ImportError as reason:
        message = f"{package} is not installed ({reason}); install it with pip install 'pydarknetbn[{extra}]'"
        raise MissingExtraError(message) from reason


def has_package(package: str) -> bool:
    """Whether it is installed."""
    return find_spec(package) is not None
