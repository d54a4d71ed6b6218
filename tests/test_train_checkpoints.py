"""Checkpoints: what is in them, what is refused, and what is left after a kill at any moment."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pydarknetbn as dn
from killed_training import KILLED, LARGE
from nets import cfg_of
from pydarknetbn._native import Array
from pydarknetbn.files import write_atomically
from trainings import CLASSIFIER, batch, batches, parameters

SCRIPT = Path(__file__).with_name("killed_training.py")
FORKS = [("pjreddie", "pjreddie-cpu"), ("alexeyab", "alexeyab-cpu"), ("hank-ai", "hank-ai-cpu"), ("alexeyab", "textbook")]

pytestmark = pytest.mark.filterwarnings("ignore::pydarknetbn.DarknetWarning")


# --- going on -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dialect", "profile"), FORKS)
@pytest.mark.parametrize("adam", [0, 1])
def test_resuming_gives_the_bits_of_an_uninterrupted_run(dialect: str, profile: str, adam: int, tmp_path: Path) -> None:
    """With momentum or Adam, dropout's random numbers, and deltas that some programs never clear."""
    cfg = CLASSIFIER.replace(b"batch=8", f"adam={adam}\npolicy=random\nbatch=8".encode())
    whole = dn.load(cfg, dialect=dialect, profile=profile, seed=3)
    history = whole.fit(batches, steps=12)
    dn.load(cfg, dialect=dialect, profile=profile, seed=3).fit(batches, steps=7, checkpoint=tmp_path / "half")
    resumed = dn.load(cfg, dialect=dialect, profile=profile, seed=4)
    rest = resumed.fit(batches, steps=12, resume=tmp_path / "half.ckpt", checkpoint=tmp_path / "end")
    assert parameters(resumed) == parameters(whole)
    assert rest.loss.tobytes() == history.loss[7:].tobytes()
    assert rest.rate.tobytes() == history.rate[7:].tobytes()
    assert (rest.steps, len(rest.loss), resumed.seen) == (12, 5, 96)
    assert (tmp_path / "end.weights").read_bytes() == whole.to_bytes()
    before = whole.train_step(*batch(12))
    assert resumed.train_step(*batch(12)) == before


@pytest.mark.parametrize("layer", ["rnn output=4 hidden=4", "lstm output=4", "gru output=4", "crnn output=4 size=1 pad=1"])
@pytest.mark.parametrize(("dialect", "profile"), FORKS[:2])
def test_recurrent_layers_go_on_with_their_state(layer: str, dialect: str, profile: str, tmp_path: Path) -> None:
    """Two sequences of three time steps; an LSTM's delta of the cell goes on, too."""
    net = "batch=2 time_steps=3 learning_rate=.05"
    cfg = cfg_of(f"{layer} batch_normalize=1", "connected output=3 activation=linear", "softmax", c=5, w=1, h=1, net=net)

    def some(first: int) -> Iterator[tuple[Array, Array]]:
        while True:
            generator = np.random.default_rng([9, first])
            yield generator.random((6, 5, 1, 1), np.float32), np.eye(3, dtype=np.float32)[generator.integers(0, 3, 6)]
            first += 1

    whole = dn.load(cfg, dialect=dialect, profile=profile, seed=1)
    history = whole.fit(some, steps=5)
    dn.load(cfg, dialect=dialect, profile=profile, seed=1).fit(some, steps=3, checkpoint=tmp_path / "half")
    resumed = dn.load(cfg, dialect=dialect, profile=profile, seed=2)
    assert resumed.fit(some, steps=5, resume=tmp_path / "half.ckpt").loss.tobytes() == history.loss[3:].tobytes()
    assert parameters(resumed) == parameters(whole)


def test_a_nan_that_a_program_multiplies_by_0_is_in_the_checkpoint(tmp_path: Path) -> None:
    nets = [dn.load(CLASSIFIER, dialect="alexeyab", seed=3) for _ in range(2)]
    for net in nets:
        net.train_step(*batch(0))
    nets[0].layers[0].delta[1, 2] = np.nan  # more than a dropout drops
    nets[0].fit([], checkpoint=tmp_path / "nan")
    nets[1].fit([], resume=tmp_path / "nan.ckpt")
    for net in nets:
        net.train_step(*batch(1))
        assert np.isnan(net.layers[0].weights).any()


def test_every_so_many_steps_and_in_the_end_a_checkpoint_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    monkeypatch.setattr("pydarknetbn.training.fitting.write_checkpoint", lambda net, path, steps: written.append(steps))
    dn.load(CLASSIFIER, seed=3).fit(batches, steps=7, checkpoint=tmp_path / "a", every=3)
    assert written == [3, 6, 7]


# --- refused --------------------------------------------------------------------------------------------------------------------


def checkpoint_of(folder: Path, **options: Any) -> Path:
    dn.load(CLASSIFIER, seed=3, **options).fit(batches, steps=1, checkpoint=folder / "a")
    return folder / "a.ckpt"


def refused(net: dn.Network, path: Path) -> str:
    before = net.to_bytes()
    with pytest.raises(dn.CheckpointError) as caught:
        net.fit([], resume=path)
    assert net.to_bytes() == before
    return str(caught.value)


def test_a_checkpoint_of_another_cfg_dialect_or_profile_is_refused_in_one_sentence(tmp_path: Path) -> None:
    path = checkpoint_of(tmp_path)
    other = dn.load(CLASSIFIER.replace(b".05", b".06"), seed=3)
    assert refused(other, path) == f"{path}: is of a training with another cfg, not <bytes>; go on with what it began with"
    told = refused(dn.load(CLASSIFIER, profile="textbook"), path)
    assert told == f"{path}: is of a training with profile alexeyab-cpu, not textbook; go on with what it began with"
    assert "dialect alexeyab, not pjreddie" in refused(dn.load(CLASSIFIER, dialect="pjreddie", profile="alexeyab-cpu"), path)


def test_what_is_no_checkpoint_or_damaged_is_refused(tmp_path: Path) -> None:
    net = dn.load(CLASSIFIER, seed=3)
    assert "does not exist" in refused(net, tmp_path / "none.ckpt")
    path = checkpoint_of(tmp_path)
    data = path.read_bytes()
    assert "is no checkpoint" in refused(net, path.with_suffix(".weights"))
    for at in (0, 100, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:at])
        refused(net, path)
    place = data.index(b"0.weights.npy") + 200
    path.write_bytes(data[:place] + bytes(8) + data[place + 8 :])
    assert "damaged" in refused(net, path)


def test_a_checkpoint_that_lacks_an_array_or_has_another_changes_nothing(tmp_path: Path) -> None:
    path = checkpoint_of(tmp_path)
    with np.load(path) as arrays:
        held = dict(arrays)
    for changed, words in (
        ({name: array for name, array in held.items() if name != "2.weights"}, "has no 2.weights"),
        (held | {"2.biases": np.zeros(4, np.float32)}, "holds 2.biases as float32 (4,), expected float32 (3,)"),
        (held | {"9.weights": np.zeros(4, np.float32)}, "holds 9.weights, which has no place here"),
        (held | {"0.first.paint": np.zeros(4, np.float32)}, "holds 0.first.paint"),
        (held | {"2.first.weights": held["2.weight_updates"]}, "has one moment of 2.weights of two"),
        (held | {"3.state.state": np.zeros((0, 3), np.float32)}, "holds 3.state.state"),
        (held | {"2.delta.here": np.zeros((4, 2), np.float32)}, "holds 2.delta.here"),
    ):
        with path.open("wb") as stream:
            np.savez(stream, **changed)
        assert words in refused(dn.load(CLASSIFIER, seed=4), path)


def test_where_nothing_can_be_written_one_sentence_says_so(tmp_path: Path) -> None:
    with pytest.raises(dn.CheckpointError, match=r"none/a.ckpt: cannot be written, and is as it was: there is no folder"):
        dn.load(CLASSIFIER, seed=3).fit(batches, steps=1, checkpoint=tmp_path / "none" / "a")


# --- interrupted ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C is a KeyboardInterrupt, also where the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_comes_behind_the_step_and_leaves_a_checkpoint(tmp_path: Path) -> None:
    reached: list[int] = []

    def interrupted(first: int) -> Iterator[tuple[Array, Array]]:
        for number, each in enumerate(batches(first)):
            if number == 3:
                threading.Timer(0, os.kill, (os.getpid(), signal.SIGINT)).start()
            reached.append(number)
            yield each

    net, whole = (dn.load(CLASSIFIER, seed=3) for _ in range(2))
    with pytest.raises(KeyboardInterrupt):
        net.fit(interrupted, steps=100_000, checkpoint=tmp_path / "a", every=100_000)
    resumed = dn.load(CLASSIFIER, seed=3)
    done = resumed.fit([], resume=tmp_path / "a.ckpt").steps
    assert 3 <= done <= reached[-1] + 1
    whole.fit(batches, steps=done)
    assert parameters(resumed) == parameters(whole) == parameters(net)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_within_a_step_waits_for_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    net, reference = (dn.load(CLASSIFIER, seed=3) for _ in range(2))
    run = net.runner.run

    def interrupt(*given: Any, **options: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        monkeypatch.setattr(net.runner, "run", run)
        return run(*given, **options)

    monkeypatch.setattr(net.runner, "run", interrupt)
    with pytest.raises(KeyboardInterrupt):
        net.fit(batches, steps=5)
    reference.fit(batches, steps=1)
    assert parameters(net) == parameters(reference)


# --- killed ---------------------------------------------------------------------------------------------------------------------


class Reference:
    """An uninterrupted run of the same training."""

    def __init__(self) -> None:
        self.net, self.steps = dn.load(LARGE, **KILLED), 0
        self.files = {self._digest()}

    def at(self, steps: int) -> bytes:
        """Its parameters after so many steps."""
        while self.steps < steps:
            self.net.train_step(*batch(self.steps))
            self.steps += 1
            self.files.add(self._digest())
        return parameters(self.net)

    def _digest(self) -> bytes:
        return hashlib.sha256(self.net.to_bytes()).digest()


def run_and_kill(path: Path, seconds: float) -> None:
    command = [sys.executable, str(SCRIPT), str(path), "1000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"training\n"
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)


def check_kills(folder: Path, times: int) -> int:
    """Kills the training so often; how many unfinished files were left behind."""
    path, reference, moments, left = folder / "a", Reference(), random.Random(11), 0
    for _ in range(times):
        run_and_kill(path, moments.uniform(0, 0.05))
        left += len(list(folder.glob(".a.*.tmp-*")))
        net = dn.load(LARGE, **KILLED)
        steps = net.fit([], resume=f"{path}.ckpt").steps
        assert parameters(net) == reference.at(steps)
        reference.at(steps + 1)
        assert hashlib.sha256(path.with_suffix(".weights").read_bytes()).digest() in reference.files
        dn.load(LARGE, path.with_suffix(".weights"), dialect="pjreddie")
    resumed = dn.load(LARGE, **KILLED)
    resumed.fit(batches, steps=steps + 5, resume=f"{path}.ckpt", checkpoint=path)
    assert parameters(resumed) == reference.at(steps + 5)
    assert sorted(each.name for each in folder.iterdir()) == ["a.ckpt", "a.weights"]
    return left


def test_a_kill_at_any_moment_leaves_files_that_hold_a_state_that_was_reached(tmp_path: Path) -> None:
    check_kills(tmp_path, 10)


@pytest.mark.long
def test_two_hundred_kills_leave_files_that_hold_a_state_that_was_reached(tmp_path: Path) -> None:
    assert check_kills(tmp_path, 200) > 0


def test_what_killed_processes_left_is_removed_and_what_others_write_is_not(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    gone = [f".a.tmp-{ended.pid}-1", f".a.tmp-{os.getpid()}-{threading.get_ident()}"]
    kept = [f".a.tmp-{os.getppid()}-1", f".b.tmp-{ended.pid}-1", ".a.tmp-mine"]
    for name in (*gone, *kept):
        (tmp_path / name).write_bytes(b"half")
    write_atomically(tmp_path / "a", lambda stream: stream.write(b"whole"))
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([*kept, "a"])
