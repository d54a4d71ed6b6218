"""A network: its layers, run one after another."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np

from ._native import Array
from .building import Built, Origin, clone_layers
from .calibration import calibrate
from .devices import device_of, forward_on_device, to
from .dialect import Dialect, Profile
from .errors import StateError
from .layers import Layer
from .recurrence import State, reset_state_of, state_of
from .running import Runner
from .training import Pass, Progress, TrainSettings, methods
from .weights import Header, header_of, write_file, write_weights

if TYPE_CHECKING:
    from .boxes import Detections

__all__ = ["Network"]


class Network:
    """Layers of one `.cfg`, made by `load`.

    Calls from several threads are put one after another; `close` (or `with`) frees the memory before the last reference goes.

    Attributes:
        layers: tuple of `Layer`.
        names: of the classes, () where unknown.
        header: of the weights that were read, or of those that `save` would write.
        origin: files, decisions and warnings.
        folded: batchnorms were folded into the layers before them, see `fold`.
        arithmetic: the profile's record.
        runner: of its layers, and the memory that they share.
        progress: how far its training is.
        time_steps: of a batch that recurrent layers get: its rows are all sequences of one step, then of the next. What [net]
            says; may be set, to 1 for one step at a time.
    """

    def __init__(
        self,
        built: Built,
        *,
        dialect: Dialect,
        profile: Profile,
        header: Header,
        origin: Origin,
        names: tuple[str, ...] = (),
        folded: bool = False,
    ) -> None:
        self.layers, self.names, self.header, self.origin = built.layers, names, header, origin
        self._in_shape, self.dialect_record, self.arithmetic = built.in_shape, dialect, profile
        self._letter_box, self.folded, self.time_steps = built.letter_box, folded, built.time_steps
        self.progress = Progress()
        self.runner = Runner(self.layers, self.kept, origin.cfg.name, folded=folded)
        self._lock, self._process = threading.RLock(), os.getpid()

    def __repr__(self) -> str:
        return f"<Network {self.origin.cfg.name}: {len(self.layers)} layers, input {self._in_shape}, {self.profile}>"

    @property
    def c(self) -> int:
        """Channels of the input."""
        return self._in_shape.c

    @property
    def h(self) -> int:
        """Height of the input."""
        return self._in_shape.h

    @property
    def w(self) -> int:
        """Width of the input."""
        return self._in_shape.w

    @property
    def dialect(self) -> str:
        """Name of the dialect that the files were read in."""
        return self.dialect_record.name

    @property
    def profile(self) -> str:
        """Name of the profile that computes."""
        return self.arithmetic.name

    @property
    def why(self) -> tuple[str, ...]:
        """Sentences: how dialect and profile were decided."""
        return self.origin.why

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences: what was read in one of several ways."""
        return self.origin.warnings

    @property
    def heads(self) -> tuple[Layer, ...]:
        """The layers that make detections."""
        return tuple(layer for layer in self.layers if layer.head)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """One thread at a time, as long as the network is not closed."""
        with self._lock_of_process():
            if not self.layers:
                raise StateError(f"{self.origin.cfg.name}: the network is closed; load it again")
            yield

    def _lock_of_process(self) -> AbstractContextManager[bool]:
        if self._process != os.getpid():  # a forked child; the lock may be held by a thread that is not there
            self._lock, self._process = threading.RLock(), os.getpid()
        return self._lock

    # --- running ----------------------------------------------------------------------------------------------------------------

    def forward(
        self, x: Array, *, train: bool = False, cache: bool | None = None, keep: Literal["all", "heads"] = "all"
    ) -> list[Array]:
        """Runs the layers on a batch; its size is the array's, whatever the cfg says.

        Args:
            x: (batch, c, h, w), float32, C order, values as the network was trained with (0 to 1 for pictures). A network
                without height and width takes (batch, inputs) too. On a device, see `to`, also an array that lies there.
            train: batchnorm takes the batch's statistics and moves its rolling arrays.
            cache: batchnorm keeps what a backward needs; None: as train says.
            keep: "heads" drops each other layer's output as soon as no layer needs it any more, which takes a fraction of the
                memory; `layer.output` is then a StateError. In training everything is kept.

        Returns:
            New arrays: the outputs of the heads, without any the last layer's.

        Raises:
            DtypeError, ShapeError: x is not as told.
            UnsupportedError: a crop or dropblock in training, or a training on a device.
            StateError: after `close`; other sequences than the state is of.
        """
        if keep not in ("all", "heads"):
            raise ValueError(f"expected keep to be 'all' or 'heads', got {keep!r}")
        with self.turn():
            x = self.checked(x)
            done = Pass(x, train, self.time_steps, train if cache is None else cache)
            done = self.runner.run(done, keep_all=keep == "all")
            return [done.output_of(layer) for layer in self.kept]

    backward, loss, train_step, fit, freeze = methods.backward, methods.loss, methods.train_step, methods.fit, methods.freeze
    calibrate, sync_bn, reset_state = calibrate, methods.sync_bn, reset_state_of
    to, forward_on_device = to, forward_on_device
    state: State = property(state_of)  # type: ignore[assignment]
    device: str = property(device_of)  # type: ignore[assignment]
    generator: np.random.Generator = property(methods.generator, methods.set_generator)  # type: ignore[assignment]
    seen: int = property(methods.seen, methods.set_seen)  # type: ignore[assignment]
    settings: TrainSettings = property(methods.settings, methods.set_settings)  # type: ignore[assignment]
    learning_rate: float = property(methods.learning_rate)  # type: ignore[assignment]
    training_faults: tuple[str, ...] = property(methods.what_is_trained_wrongly)  # type: ignore[assignment]

    @property
    def kept(self) -> tuple[Layer, ...]:
        """The layers whose outputs `forward` gives: the heads, without any the last."""
        return self.heads or self.layers[-1:]

    def checked(self, x: object) -> Array:
        """A batch that a forward takes, or an error."""
        flat = len(getattr(x, "shape", ())) == 2 and self.h == self.w == 1
        batch: Array = self.runner.checked(x, ("batch", self.c) if flat else ("batch", *self._in_shape))
        return batch

    def detect(
        self,
        pictures: Any,
        *,
        thresh: float = 0.25,
        hier: float = 0.5,
        nms: float = 0.45,
        nms_kind: str | None = None,
        resize: Literal["letterbox", "stretch"] | None = None,
        names: Sequence[str] | None = None,
        mapped: bool = False,
    ) -> Detections | list[Detections]:
        """Finds objects in a picture, as the dialect's detector does.

        Args:
            pictures: a path, PIL image or float32 (c, h, w) array in 0..1; or a list of them.
            thresh: lower limit of objectness and of objectness times class probability.
            hier: with a tree of classes, the lower limit of the probability along a branch.
            nms: overlap over which the less probable of two boxes of a class goes.
            nms_kind: see `boxes.nms`; None takes the cfg's.
            resize: how the picture fits the input; None takes the dialect's way.
            names: of the classes; None takes the network's.
            mapped: with a tree, classes are those of the file that the cfg's map= names, each as probable as its node.

        Returns:
            `Detections`, boxes in pixels of the picture; a list of them for a list.

        Raises:
            UnsupportedError: the network has no head, or no map for `mapped`.
        """
        from .detecting import DetectOptions, Detector  # noqa: PLC0415 a network is often asked for other things

        options = DetectOptions(thresh, hier, nms, nms_kind, resize or self.default_resize, names, mapped)
        with self.turn():
            detector = Detector(self.origin.cfg.name, self._in_shape, self.heads, self.names, self.arithmetic.layers)
        return detector.detect(pictures, options, self._run_locked)

    def _run_locked(self, x: Array, decode: Callable[[], Detections]) -> Detections:
        with self.turn():
            self.runner.run(Pass(self.checked(x), train=False, time_steps=1), keep_all=False)
            return decode()

    @property
    def default_resize(self) -> Literal["letterbox", "stretch"]:
        """How the dialect's detector fits a picture into this network's input."""
        return "letterbox" if self._letter_box else self.dialect_record.resize

    # --- writing ----------------------------------------------------------------------------------------------------------------

    def save(
        self, target: str | os.PathLike[str] | BinaryIO, *, header: tuple[int, int, int, int] | None = None, upto: int | None = None
    ) -> None:
        """Writes the weights; after a load the identical bytes.

        But of a layer with dontload, dontloadscales or numload, of which a load took less, every array is written, and of one with
        dontsave none: what the fork's program does.

        Args:
            target: path, written beside it and renamed, or binary file.
            header: (major, minor, revision, seen); None writes the one that was read.
            upto: layers from this number on are left out.

        Raises:
            WeightsError: the file cannot be written; an old one is as it was.
            StateError: the network is folded, and the cfg of that name is the one from before.
        """
        with self.turn():
            written = header_of(header, self.dialect_record) if header else self.header
            if isinstance(target, str | os.PathLike):
                self.origin.refuse_old_cfg(Path(target).with_suffix(".cfg"), self.dialect_record)
                write_file(target, written, self.layers, upto)
            else:
                write_weights(target, written, self.layers, upto)

    def to_bytes(self) -> bytes:
        """What `save` writes."""
        stream = io.BytesIO()
        self.save(stream)
        return stream.getvalue()

    # --- copies and end -----------------------------------------------------------------------------------------------------------

    def clone(self, *, share: bool = False) -> Network:
        """A network of its own with the same parameters, dialect, profile, header and names; its state is fresh.

        Clones that share run at the same time, one thread each, in little more memory than one network.

        Args:
            share: its parameters are this network's arrays: what is written into one is read by both.

        Raises:
            StateError: after `close`.
        """
        with self.turn():
            layers = clone_layers(self.layers, share=share)
            built = Built(layers, self._in_shape, self._letter_box, self.warnings, self.time_steps)
        given: dict[str, Any] = {"header": self.header, "origin": self.origin, "names": self.names, "folded": self.folded}
        made = Network(built, dialect=self.dialect_record, profile=self.arithmetic, **given)
        made.progress = self.progress.of_a_clone()
        return made

    def close(self) -> None:
        """Lets go of the layers; views of their arrays stay valid. A second close does nothing."""
        with self._lock_of_process():
            self.layers = ()
            self.runner = Runner((), (), self.origin.cfg.name)

    def __enter__(self) -> Network:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
