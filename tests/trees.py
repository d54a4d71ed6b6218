"""A tree of seven classes in three levels, and files for it."""

from __future__ import annotations

from pathlib import Path

# animal and thing; cat and dog; poodle and terrier; car: a branch of three, one of two, and a group of one
TREE = "animal -1\nthing -1\ncat 0\ndog 0\npoodle 3\nterrier 3\ncar 1\n"
PARENTS = [-1, -1, 0, 0, 3, 3, 1]
REGION = "region classes=7 num=2 coords=4 softmax=1 anchors=1,2,3,4"


def written(folder: Path, text: str, name: str = "x.tree") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
