"""A training that writes a checkpoint after each step, to be killed: python killed_training.py PATH STEPS."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pydarknetbn as dn
from pydarknetbn._native import Array
from trainings import CLASSIFIER, batches

# Its files take as long to write as its steps take, so that a kill often falls into a write.
LARGE = CLASSIFIER.replace(b"[connected]", b"[connected]\noutput=400\nactivation=leaky\n\n[connected]")
KILLED = {"dialect": "pjreddie", "seed": 3}


def told(first: int) -> Iterator[tuple[Array, Array]]:
    """The batches; the second one tells that a checkpoint is written."""
    for number, batch in enumerate(batches(first)):
        if number == 1:
            print("training", flush=True)
        yield batch


def main() -> None:
    """Begins, or goes on where the checkpoint says."""
    path, steps = sys.argv[1], int(sys.argv[2])
    net, checkpoint = dn.load(LARGE, **KILLED), Path(f"{path}.ckpt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dn.DarknetWarning)
        net.fit(told, steps=steps, checkpoint=path, resume=checkpoint if checkpoint.exists() else None, every=1)


if __name__ == "__main__":
    main()
