"""tree= and map=: classes under classes, in [softmax] and [region]."""

from __future__ import annotations

from .. import _native
from .._native import CData
from ..options import Section
from ..trees import Tree, find_file, read_map, read_tree
from .base import Context

__all__ = ["map_of", "set_tree", "tree_of"]


def tree_of(section: Section, context: Context, values: int) -> Tree | None:
    """The tree that tree= names; without that file a warning and none: the softmax is over all values.

    Raises:
        CfgError: the file is no tree, or one of more or fewer nodes than values.
    """
    path = find_file(section, "tree")
    if path is None:
        if section.has("tree"):
            context.warnings.append(_missing(section, "tree", "a softmax over all classes takes its place"))
        return None
    tree = read_tree(path)
    if len(tree) != values:
        message = f"{section.name}, layer {section.index}, has a tree of {len(tree)} nodes ({path}), but {values} classes"
        raise section.error(f"{message}; each has to be a node", "tree")
    return tree


def _missing(section: Section, key: str, instead: str) -> str:
    """The warning that the file of an option is not there."""
    places = "beside the cfg, in the folder above and in the working directory"
    return str(section.error(f"{key}={section.text(key, '')} is no file {places}; {instead}", key))


def set_tree(native: CData, tree: Tree | None) -> None:
    """Gives a layer of the core its tree."""
    if tree:
        _native.check(_native.lib.set_softmax_tree(native, _native.ffi.new("int[]", tree.parents), len(tree)))


def map_of(section: Section, context: Context, classes: int) -> tuple[int, ...]:
    """The classes that the file of map= names; without that file a warning and none."""
    path = find_file(section, "map")
    if path is None and section.has("map"):
        context.warnings.append(_missing(section, "map", "there is no map"))
    return read_map(path, classes) if path else ()
