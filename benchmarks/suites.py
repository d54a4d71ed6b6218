"""Which suites there are, whom each compares, and what is to be reached."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from . import arrays, networks
from .common import Cases, Setting
from .original import original
from .peak import peak
from .training import training


@dataclass(frozen=True)
class Target:
    """A limit of one contender's ratio.

    Args:
        contender: whose ratio.
        limit: the ratio, at least; at most where `most`.
        case: pattern of the cases that it holds for.
        most: the ratio is to stay below.
        by_peak: scaled down on a processor that has pipes for FMA alone, see `report.scale`.
    """

    contender: str
    limit: float
    case: str = ""
    most: bool = False
    by_peak: bool = False

    def holds_for(self, case: str, contender: str) -> bool:
        """Whether it speaks of that row."""
        return contender == self.contender and re.search(self.case, case) is not None


@dataclass(frozen=True)
class Suite:
    """Cases, their contenders and targets.

    Args:
        title: one line above the table.
        cases: what is timed of a contender.
        contenders: the first is what the others are compared with.
        targets: what is to be reached.
        networks: whether it reads what `networks.prepare` writes.
        compare: how a contender's ratio is had: "ratio" is its time over the first's, "faster" the first's over its, "apart" that
            of both in turn over the sum of the two, "more" the milliseconds that it takes beyond the first.
    """

    title: str
    cases: Callable[[str, Setting], Cases]
    contenders: tuple[str, ...]
    targets: tuple[Target, ...] = ()
    networks: bool = False
    compare: str = "ratio"


TWO = ("1 thread", "2 threads")
SMALL, FASTEST = r"yolov", r"yolo-fastest"

SUITES: dict[str, Suite] = {
    "peak": Suite("The processor's limit: multiplications and additions in registers", peak, ("apart", "fma")),
    "batchnorm": Suite(
        "Batch normalization (float32, NCHW)",
        arrays.batchnorm,
        ("ours", "torch", "copy"),
        (Target("torch", 1.3, "training"), Target("torch", 1.1, "inference"), Target("copy", 0.8, "inference")),
    ),
    "convolution": Suite(
        "Convolutions of yolov3 at 416 (channels-filters, side)",
        arrays.convolution,
        ("ours", "torch", "numpy", "peak"),
        (Target("torch", 1.0, by_peak=True), Target("numpy", 0.85, by_peak=True)),
    ),
    "training": Suite(
        "A step of training: five convolutions with batchnorm, momentum, decay",
        training,
        ("ours", "torch"),
        (Target("torch", 0.7),),
    ),
    "activation": Suite("Activations of ten million values", arrays.activation, ("ours", "torch", "system")),
    "network": Suite(
        "Whole networks, one image (random weights where no .weights lies beside the .cfg)",
        networks.network,
        ("ours", "torch", "onnxruntime", "opencv"),
        (
            Target("onnxruntime", 0.8, SMALL, by_peak=True),
            Target("opencv", 1.1, SMALL, by_peak=True),
            Target("onnxruntime", 0.6, FASTEST, by_peak=True),
        ),
        networks=True,
    ),
    "threads": Suite(
        "Two threads against one",
        arrays.threads,
        TWO,
        (Target("2 threads", 1.8, "convolution"), Target("2 threads", 1.5, "batchnorm")),
        compare="faster",
    ),
    "growth": Suite("Growth of yolov3-tiny with batch and size", networks.growth, TWO, compare="faster"),
    "load": Suite("Loading", networks.load, ("ours", "read", "torch"), networks=True),
    "fold": Suite("Folding", networks.fold, ("ours", "torch"), networks=True),
    "picture": Suite("From a picture to the network's input", arrays.picture, ("ours", "opencv")),
    "alternate": Suite(
        "Calls of ours and of PyTorch's in turn, against both apart",
        arrays.alternate,
        ("ours", "torch", "both", "passive"),
        (Target("both", 1.05, most=True), Target("passive", 1.05, most=True)),
        compare="apart",
    ),
    "startup": Suite(
        "Start of a process, beyond NumPy's import",
        arrays.startup,
        ("numpy", "import", "info"),
        (Target("import", 60, most=True), Target("info", 250, most=True)),
        compare="more",
    ),
    "original": Suite(
        "The original's own build (--original DIR; the targets are meant for pjreddie's)",
        original,
        ("ours", "original"),
        (Target("original", 8, "yolov3-tiny"), Target("original", 20, "yolov3, 608"), Target("original", 3.5, "batchnorm")),
        networks=True,
    ),
}
