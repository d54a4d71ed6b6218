"""Reads the files that `tree=` and `map=` name: a tree of classes, and the classes of another list as nodes of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .errors import CfgError
from .options import Section, quoted

__all__ = ["Tree", "find_file", "read_map", "read_tree"]

_LINE_END = re.compile(r"\r\n|\r|\n")
_WHOLE = re.compile(r"[+-]?[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Tree:
    """Classes under classes.

    Neighbours of one parent are a group, whose probabilities add up to 1. Parents stand before their daughters.

    Args:
        names: of the nodes, in the order of the file.
        parents: number of each node's parent, -1 for those of the first group.
    """

    names: tuple[str, ...]
    parents: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.parents)

    @property
    def leaves(self) -> tuple[int, ...]:
        """The nodes that are nobody's parent."""
        inner = frozenset(self.parents)
        return tuple(node for node in range(len(self)) if node not in inner)


def find_file(section: Section, key: str) -> Path | None:
    """The file that an option names: beside the cfg, else below the folder above the cfg's, else as it is written.

    The forks open it as it is written, from the folder in which `cfg/` and `data/` lie.

    Returns:
        None where there is none, or no option.
    """
    name = section.text(key, "")
    if not name or "\0" in name:
        return None
    folder = Path(section.file).parent
    places = (folder / name, folder / Path(name).name, folder.parent / name, Path(name))
    return next((place for place in places if place.is_file()), None)


def read_tree(path: Path) -> Tree:
    """A tree: on each line a name and, where it is not in the first group, the number of its parent's line, counted from 0.

    Raises:
        CfgError: naming file and line: no name, a parent that is no number, or none of an earlier line.

    Source: tree.c read_tree, all forks.
    """
    names: list[str] = []
    parents: list[int] = []
    for line, words in _lines(path):
        parent = _whole(path, line, words[1]) if len(words) > 1 else -1
        if not -1 <= parent < len(names):
            known = f"-1 or one of the nodes before it, 0 to {len(names) - 1}" if names else "-1, since it is the first node"
            raise CfgError(f"{quoted(words[0])} has parent {parent}, expected {known}", file=str(path), line=line)
        names.append(words[0])
        parents.append(parent)
    if not names:
        raise CfgError("holds no node, expected a name and the number of its parent on each line", file=str(path))
    return Tree(tuple(names), tuple(parents))


def read_map(path: Path, classes: int) -> tuple[int, ...]:
    """A map: on each line the number of a class.

    Args:
        path: the file.
        classes: they are numbered below this.

    Raises:
        CfgError: naming file and line: no number, or none of a class.

    Source: utils.c read_map, all forks.
    """
    numbers = []
    for line, words in _lines(path):
        number = _whole(path, line, words[0])
        if not 0 <= number < classes:
            raise CfgError(f"names class {number}, expected one from 0 to {classes - 1}", file=str(path), line=line)
        numbers.append(number)
    if not numbers:
        raise CfgError("holds no class, expected the number of one on each line", file=str(path))
    return tuple(numbers)


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Number and words of each line; blank ones at the end of the file do not count."""
    try:
        text = path.read_bytes().decode("utf-8-sig", errors="replace").rstrip()
    except OSError as reason:
        raise CfgError(f"cannot be read: {reason}", file=str(path)) from reason
    for line, content in enumerate(_LINE_END.split(text) if text else (), start=1):
        words = content.split()
        if not words:
            raise CfgError("is a blank line, where every line counts as a class; remove it", file=str(path), line=line)
        yield line, words


def _whole(path: Path, line: int, word: str) -> int:
    if not _WHOLE.fullmatch(word):
        raise CfgError(f"expected a whole number, got {quoted(word)}", file=str(path), line=line)
    return int(word)
