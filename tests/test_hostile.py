"""Files made to harm: whatever their bytes, loading returns or raises an error of the package, in little memory."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pydarknetbn as dn
from nets import cfg_of, numbered, weights_of
from pydarknetbn import _native, loading
from pydarknetbn.cli import main

MEBIBYTE = 1 << 20
HUGE = ["conv filters=2000000000 size=3", "conv filters=2000000000 size=3 batch_normalize=1", "conn output=2000000000"]


def peak() -> int:
    """The most memory that the process ever had, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@pytest.fixture(autouse=True, scope="module")
def small_machine() -> Iterator[None]:
    """A machine with 256 MiB to give, so that a test that takes more is seen."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "available_memory", lambda: 256 * MEBIBYTE)
        before = peak()
        yield
        assert peak() - before < 1024 * MEBIBYTE


@pytest.mark.parametrize("section", HUGE)
def test_layer_of_gigabytes_is_refused_with_its_line_before_memory_is_taken(section):
    before = peak()
    with pytest.raises(MemoryError) as caught:
        dn.load(cfg_of("max", section))
    assert str(caught.value).startswith("<bytes>:6: [con")
    assert "bytes is more than the" in str(caught.value)
    with pytest.raises(dn.WeightsError, match=r"^<bytes>:6: .* and <bytes> holds 60 bytes; it belongs to another cfg"):
        dn.load(cfg_of("max", section), weights_of(numbered(10)))
    assert peak() - before < 8 * MEBIBYTE


def test_layers_that_only_together_are_too_large_are_refused_at_the_last_that_fits_not():
    before = peak()
    with pytest.raises(MemoryError) as caught:
        dn.load(cfg_of(*["conv filters=1000 size=9 pad=1"] * 20))
    assert str(caught.value).startswith("<bytes>:9: [conv], layer 1: an array of 324000000 bytes")
    assert peak() - before < 8 * MEBIBYTE


def test_limit_is_the_calling_threads_and_ends_with_its_block():
    with _native.array_limit(400):
        dn.BatchNorm(25)
        with pytest.raises(MemoryError, match="an array of 4 bytes is more than the 0 that may still be taken"):
            dn.BatchNorm(1)
    dn.BatchNorm(1000)


@pytest.mark.parametrize("key", ["yolo", "region", "Gaussian_yolo"])
def test_head_of_a_billion_anchors_is_refused(key):
    with pytest.raises(dn.CfgError, match="num='1000000000', expected 65536 or less"):
        dn.load(cfg_of("conv filters=18 activation=linear", f"{key} num=1000000000 classes=1"))


@pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")
def test_harness_of_the_core_compiles_against_its_header():
    source = Path(__file__).parent / "fuzz" / "fuzz_core.c"
    done = subprocess.run(["cc", "-fsyntax-only", "-Wall", "-Werror", str(source)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# --- any bytes ------------------------------------------------------------------------------------------------------------------

NUMBERS = st.sampled_from([*"0 1 2 3 4 8 16 -1 -2 -4 0.5 2147483647 2147483648 1e9 99999999999 x".split(), ""])
KEYS = st.sampled_from(
    "filters size stride pad padding groups batch_normalize activation dilation stride_x stride_y share_index output layers from "
    "group_id weights_type alpha classes num mask anchors coords softmax width height channels inputs reverse scale".split()
)
WORDS = st.sampled_from(["leaky", "linear", "mish", "per_channel", "1,2,3,4", "-1,-2", "0,1", ",", "-1,", "#", "nan"])
SECTIONS = st.sampled_from(
    "[convolutional] [connected] [batchnorm] [maxpool] [avgpool] [route] [shortcut] [upsample] [reorg] [reorg3d] [softmax] "
    "[dropout] [cost] [yolo] [region] [net] [crop] [".split()
)
OPTIONS = st.tuples(KEYS, st.one_of(NUMBERS, NUMBERS, WORDS)).map("=".join)
LAYERS = st.tuples(SECTIONS, st.lists(OPTIONS, max_size=6)).map(lambda parts: "\n".join([parts[0], *parts[1]]))
CFGS = st.one_of(
    st.binary(max_size=200),
    st.lists(LAYERS, max_size=6).map(lambda layers: "\n".join(["[net]\nwidth=8\nheight=8\nchannels=4", *layers]).encode()),
    st.lists(LAYERS, max_size=6).map(lambda layers: "\n".join(layers).encode()),
)
HEADERS = st.sampled_from([(0, 1, 0), (0, 2, 0), (0, 2, 5), (1001, 0, 0), (2**31 - 1, -(2**31), 0)])
WEIGHTS = st.one_of(
    st.binary(max_size=300), st.tuples(st.integers(0, 200), HEADERS).map(lambda parts: weights_of(numbered(parts[0]), parts[1]))
)
SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)


@SETTINGS
@given(cfg=CFGS, weights=st.one_of(st.none(), WEIGHTS), dialect=st.sampled_from(["auto", "pjreddie", "alexeyab", "hank-ai"]))
def test_any_cfg_with_any_weights_loads_or_is_refused(cfg, weights, dialect):
    try:
        net = dn.load(cfg, weights, dialect=dialect)
    except (dn.DarknetError, MemoryError):
        return
    assert weights is None or net.to_bytes() == weights


@SETTINGS
@given(weights=WEIGHTS)
def test_any_weights_under_a_good_cfg_are_reported(weights):
    two = cfg_of("conv filters=2 size=3 pad=1 batch_normalize=1 activation=leaky", "conv filters=18 activation=linear")
    report = dn.check(two, weights)
    assert report.verdict
    assert report.nbytes == len(weights)
    assert report.good or report.exit_code == 1


@SETTINGS
@given(cfg=CFGS)
def test_any_cfg_is_linted_or_no_text(cfg):
    try:
        findings, forks = dn.lint(cfg), dn.forks(cfg)
    except dn.CfgError:
        return
    assert all(finding.line >= 1 and "\n" not in finding.message for finding in findings)
    assert len(forks) == 3


@settings(SETTINGS, max_examples=30)
@given(cfg=CFGS, weights=WEIGHTS, verb=st.sampled_from(["info", "check", "lint", "diff", "cut"]))
def test_command_line_never_shows_a_traceback(cfg, weights, verb):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        names = [str(Path(folder) / name) for name in ("net.cfg", "net.weights", "out.weights")]
        Path(names[0]).write_bytes(cfg)
        Path(names[1]).write_bytes(weights)
        more = {"lint": [], "diff": names[1:2] * 2, "cut": [names[1], "1", "-o", names[2]]}.get(verb, names[1:2])
        patch.setattr(sys, "argv", ["pydarknetbn", verb, names[0], *more])
        with pytest.raises(SystemExit) as caught:
            main()
    assert caught.value.code in (None, 0, 1, 2)
