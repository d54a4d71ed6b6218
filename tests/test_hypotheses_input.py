"""Each other way to make a network's input is found by its own hypothesis, at the noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from PIL import Image

import pydarknetbn as dn
from nets import cfg_of
from pydarknetbn._native import Array
from pydarknetbn.doctor.hypotheses import GENERATORS
from pydarknetbn.doctor.hypotheses.input import given
from pydarknetbn.doctor.running import Runner
from pydarknetbn.doctor.situation import Hypothesis, Place, Trial
from pydarknetbn.doctor.steps import INPUT, input_step

EXPLAINS = 8.0
"""Multiples of the rounding noise."""
W, H = 40, 32
CFG = cfg_of("conv filters=6 size=3 pad=1 activation=linear", w=W, h=H)


def levels() -> np.ndarray[Any, np.dtype[np.uint8]]:
    """(60, 90, 3) of smooth shades with an edge and some grain."""
    rng = np.random.default_rng(2)
    rows, columns = np.mgrid[0:60, 0:90]
    shades = np.stack([120 + 80 * np.sin(rows / 7 + k) + 40 * np.cos(columns / (5 + k)) for k in range(3)], 2)
    shades[20:40, 30:60] += 60
    return np.clip(shades + rng.normal(0, 6, shades.shape), 0, 255).astype(np.uint8)


LEVELS = levels()
PICTURE = dn.image.from_array(LEVELS)
NET = dn.load(CFG, None, seed=3)
RUNNER = Runner(NET)


def place_of(x: Array, theirs: Array | None = None, picture: Array | None = PICTURE) -> Place:
    return Place(RUNNER, input_step(NET), [x], {INPUT: x}, picture, theirs)


def trial_of(theirs: Array) -> Trial:
    """Against what the other side was given."""
    noise = 2 * 2.0**-24 * float(np.abs(theirs).max())

    def residual(hypothesis: Hypothesis) -> float:
        got = hypothesis.runs["input"](place_of(STRETCHED))
        if got is None or got.shape != theirs.shape:
            return math.inf
        assert got.dtype == np.float32
        return float(np.sqrt(np.mean(np.square(got.astype(np.float64) - theirs)))) / noise

    return residual


STRETCHED = dn.image.fit(PICTURE, W, H, how="stretch")[np.newaxis]


def explained(theirs: Array, picture: Array | None = PICTURE) -> list[Hypothesis]:
    """What explains the other side's input, fewest numbers first."""
    theirs = np.ascontiguousarray(theirs, np.float32)
    trial = trial_of(theirs)
    scored = [(trial(h), h.parameters, h) for h in given(place_of(STRETCHED, theirs, picture), trial)]
    return [h for _, _, h in sorted((each for each in scored if each[0] < EXPLAINS), key=lambda each: (each[1], each[0]))]


def only(found: list[Hypothesis], kind: str) -> Hypothesis:
    assert found, "nothing explains it"
    assert {hypothesis.kind for hypothesis in found} == {kind}
    return found[0]


def test_generator_is_that_of_the_input() -> None:
    assert GENERATORS["input"] is given


# --- values ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [255, 1 / 255, 255 / 256, 0.7, 3.14159])
def test_scale(factor: float) -> None:
    found = only(explained(STRETCHED.astype(np.float64) * factor)[:1], "input.scale")
    assert found.values["scale"] == pytest.approx(factor, rel=1e-5)


def test_scale_is_found_where_the_input_is_not_seen() -> None:
    """By the first layer's sums, here those of an input 3.3 times as large."""
    kernel = NET.layers[0].weights.astype(np.float64)

    def sums(x: Array) -> Array:
        wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
        taps = [
            np.einsum("bchw,nc->bnhw", wide[:, :, i : i + H, j : j + W], kernel[:, :, i, j]) for i in range(3) for j in range(3)
        ]
        return np.sum(taps, 0)

    theirs = sums(STRETCHED * np.float64(3.3))
    noise = 2.0**-22 * float(np.abs(theirs).max())

    def trial(hypothesis: Hypothesis) -> float:
        got = hypothesis.runs["input"](place_of(STRETCHED, None))
        return math.inf if got is None else float(np.sqrt(np.mean(np.square(sums(got) - theirs)))) / noise

    found = min(given(place_of(STRETCHED, None), trial), key=trial)
    assert (found.kind, found.values) == ("input.scale", {"scale": 3.3})


MEAN, DEVIATION = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


def per_channel(x: Array, mean: Any, deviation: Any) -> Array:
    mean, deviation = np.broadcast_to(mean, 3)[:, None, None], np.broadcast_to(deviation, 3)[:, None, None]
    return (x.astype(np.float64) - mean) / deviation


@pytest.mark.parametrize(
    ("theirs", "by", "channels"),
    [
        (per_channel(STRETCHED, MEAN, DEVIATION), "ImageNet's mean and deviation", "RGB"),
        (per_channel(STRETCHED[:, ::-1], MEAN, DEVIATION), "ImageNet's mean and deviation", "BGR"),
        (per_channel(STRETCHED, MEAN, DEVIATION)[:, ::-1], "ImageNet's mean and deviation", "BGR"),
        (STRETCHED.astype(np.float64) * 2 - 1, "a mean and deviation of 0.5, to -1 to 1", "RGB"),
        (
            (STRETCHED.astype(np.float64) * 255)[:, ::-1] - np.array([103.939, 116.779, 123.68])[:, None, None],
            "Caffe's mean of ImageNet in 0 to 255",
            "BGR",
        ),
    ],
)
def test_known_mean_and_deviation(theirs: Array, by: str, channels: str) -> None:
    found = only(explained(theirs), "input.normalization")
    assert found.values == {"by": by, "channels": channels}


def test_any_mean_and_deviation_are_recovered() -> None:
    found = only(explained(per_channel(STRETCHED, [0.4, 0.35, 0.3], [0.2, 0.25, 0.31])), "input.normalization")
    assert found.values == {"mean": "0.4, 0.35, 0.3", "deviation": "0.2, 0.25, 0.31"}


def test_pictures_own_mean_and_deviation() -> None:
    wide = STRETCHED.astype(np.float64)
    found = only(explained((wide - wide.mean()) / wide.std())[:1], "input.normalization")
    assert found.values == {"by": "image"}


def test_order_of_channels() -> None:
    assert only(explained(STRETCHED[:, ::-1]), "input.channels").values == {"channels": "BGR"}
    assert only(explained(STRETCHED[:, [1, 2, 0]]), "input.channels").values == {"channels": "GBR"}


def test_layout() -> None:
    x = STRETCHED
    as_planes = np.moveaxis(x, 1, 3).copy().reshape(x.shape)
    assert only(explained(as_planes), "input.layout").values == {"layout": "(row, column, channel) read as (channel, row, column)"}
    as_pixels = np.moveaxis(x.reshape(1, H, W, 3), 3, 1)
    assert only(explained(as_pixels), "input.layout").values == {"layout": "(channel, row, column) read as (row, column, channel)"}
    assert only(explained(x[:, :, :, ::-1]), "input.layout").values == {"layout": "mirrored"}


# --- fit and kernel -------------------------------------------------------------------------------------------------------------


def test_letterbox_instead_of_stretch() -> None:
    found = only(explained(dn.image.letterbox(PICTURE, W, H)[np.newaxis]), "input.fit")
    assert found.values["fit"] == "letterboxed in a field of 0.5"
    assert found.words == "the picture is letterboxed in a field of 0.5, Darknet's stretched"


@pytest.mark.parametrize(("fill", "name"), [(114 / 255, "114/255"), (128 / 255, "128/255"), (0.0, "0")])
def test_fill_of_a_letterbox(fill: float, name: str) -> None:
    theirs = np.full((1, 3, H, W), fill, np.float32)
    theirs[0, :, 3:29] = dn.image.resize(PICTURE, 40, 26)
    assert only(explained(theirs), "input.fit").values["fit"] == f"letterboxed in a field of {name}"


def test_letterbox_into_a_corner() -> None:
    theirs = np.full((1, 3, H, W), 114 / 255, np.float32)
    theirs[0, :, :26] = dn.image.resize(PICTURE, 40, 26)
    assert "upper left corner of a field of 114/255" in str(only(explained(theirs), "input.fit").values["fit"])


def test_centre_crop() -> None:
    theirs = dn.image.resize(PICTURE, 48, 32)[np.newaxis, :, :, 4:44]
    assert only(explained(theirs), "input.fit").values["fit"] == "resized by its shorter side and cropped to the middle"
    theirs = dn.image.resize(np.ascontiguousarray(PICTURE[:, :, 7:82]), W, H)[np.newaxis]
    assert only(explained(theirs), "input.fit").values["fit"] == "cropped to the middle and resized"


def half_pixels(source: int, target: int) -> Array:
    """(target, source) of a bilinear kernel, corners not aligned."""
    matrix = np.zeros((target, source))
    for i in range(target):
        at = min(max((i + 0.5) * source / target - 0.5, 0), source - 1)
        low = int(at)
        matrix[i, low] += 1 - (at - low)
        matrix[i, min(low + 1, source - 1)] += at - low
    return matrix


def overlaps(source: int, target: int) -> Array:
    side = source / target
    return np.array([[max(0, min(j + 1, (i + 1) * side) - max(j, i * side)) / side for j in range(source)] for i in range(target)])


def test_bilinear_kernel_between_half_pixels() -> None:
    theirs = np.einsum("ih,chw,jw->cij", half_pixels(60, H), PICTURE.astype(np.float64), half_pixels(90, W))[np.newaxis]
    found = only(explained(theirs), "input.resize")
    assert found.values["kernel"] == "bilinear between half pixels, as in PyTorch's interpolate"
    assert found.fix["torch"].startswith("F.interpolate(x, (h, w), mode='bilinear', align_corners=True)")


def test_area_kernel() -> None:
    theirs = np.einsum("ih,hwc,jw->cij", overlaps(60, H), LEVELS.astype(np.float64), overlaps(90, W))
    found = only(explained(np.rint(theirs)[np.newaxis] / 255), "input.resize")
    assert "INTER_AREA" in str(found.values["kernel"])


def test_nearest_kernel() -> None:
    theirs = PICTURE[:, np.arange(H) * 60 // H][:, :, np.arange(W) * 90 // W][np.newaxis]
    assert "INTER_NEAREST" in str(only(explained(theirs), "input.resize").values["kernel"])


@pytest.mark.parametrize("name", ["BILINEAR", "BICUBIC", "LANCZOS"])
def test_kernels_of_pillow(name: str) -> None:
    pixels = np.asarray(Image.fromarray(LEVELS).resize((W, H), Image.Resampling[name]))
    found = only(explained(dn.image.from_array(pixels)[np.newaxis]), "input.resize")
    assert found.values["kernel"] == f"Pillow's {name} with antialiasing in bytes"


@pytest.mark.parametrize("name", ["INTER_LINEAR", "INTER_CUBIC", "INTER_AREA", "INTER_NEAREST"])
def test_kernels_of_opencv(name: str) -> None:
    cv2 = pytest.importorskip("cv2", reason="opencv-python-headless is not installed")
    pixels = cv2.resize(LEVELS, (W, H), interpolation=getattr(cv2, name))
    assert name in str(only(explained(dn.image.from_array(pixels)[np.newaxis]), "input.resize").values["kernel"])


@pytest.mark.parametrize("name", ["INTER_LINEAR", "INTER_CUBIC"])
def test_kernels_of_opencv_in_floats(name: str) -> None:
    cv2 = pytest.importorskip("cv2", reason="opencv-python-headless is not installed")
    x = cv2.resize((LEVELS / 255).astype(np.float32), (W, H), interpolation=getattr(cv2, name))
    found = only(explained(x.transpose(2, 0, 1)[np.newaxis]), "input.resize")
    assert "PyTorch's interpolate" in str(found.values["kernel"])


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest", "nearest-exact", "area", "antialias"])
def test_kernels_of_pytorch(mode: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    options = {"mode": "bilinear", "antialias": True} if mode == "antialias" else {"mode": mode}
    theirs = torch.nn.functional.interpolate(torch.from_numpy(PICTURE[np.newaxis]), (H, W), **options).numpy()
    only(explained(theirs), "input.resize")


def test_fit_kernel_and_channels_together() -> None:
    """A letterbox of Pillow's bicubic in a field of 128, as keras-yolo3 has it, and that in BGR."""
    pixels = np.full((H, W, 3), 128, np.uint8)
    pixels[3:29] = np.asarray(Image.fromarray(LEVELS).resize((40, 26), Image.Resampling.BICUBIC))
    theirs = dn.image.from_array(pixels)[np.newaxis]
    found = only(explained(theirs), "input.fit")
    assert found.values["fit"] == "letterboxed in a field of 128/255"
    assert found.values["kernel"] == "Pillow's BICUBIC with antialiasing in bytes"
    assert only(explained(theirs[:, ::-1]), "input.fit").values["channels"] == "BGR"


def test_bytes_of_another_kernel_that_are_not_divided() -> None:
    """As by cv2.resize of a frame, or Pillow's, without a division, or with ImageNet's numbers after it."""
    pixels = np.asarray(Image.fromarray(LEVELS).resize((W, H), Image.Resampling.BILINEAR)).astype(np.float64)
    planes = pixels.transpose(2, 0, 1)[np.newaxis]
    found = only(explained(planes[:, ::-1]), "input.scale")
    assert found.values["values"] == "multiplied by 255"
    assert found.values["channels"] == "BGR"
    assert found.values["kernel"] == "Pillow's BILINEAR with antialiasing in bytes"
    found = only(explained(per_channel(planes / 255, MEAN, DEVIATION)), "input.normalization")
    assert found.values["values"] == "normalized with ImageNet's mean and deviation"
    assert found.values["kernel"] == "Pillow's BILINEAR with antialiasing in bytes"


def test_few_bytes_that_are_rounded_otherwise_are_the_kernels_own() -> None:
    """Of 3840 values 30 may be one byte off; not one of them much more, nor all of them."""
    pixels = np.asarray(Image.fromarray(LEVELS).resize((W, H), Image.Resampling.BICUBIC)).transpose(2, 0, 1)
    flat = pixels.ravel().astype(np.float64)
    inwards = np.where(flat < 128, 1, -1)
    at = np.random.default_rng(1).choice(flat.size, 30, replace=False)

    def found(apart: Array) -> list[Hypothesis]:
        return explained((flat + apart).reshape(1, 3, H, W) / 255)

    few = np.zeros(flat.size)
    few[at] = inwards[at]
    assert only(found(few), "input.resize").values["kernel"] == "Pillow's BICUBIC with antialiasing in bytes"
    far = few.copy()
    far[at[0]] *= 60
    assert found(far) == []
    assert found(inwards * (np.arange(flat.size) % 3 == 0)) == []


# --- no fault, and unknown ------------------------------------------------------------------------------------------------------


def test_few_levels_without_a_shift_are_another_decoder() -> None:
    grain = np.random.default_rng(4).integers(-2, 3, LEVELS.shape)
    other = np.clip(LEVELS.astype(int) + grain, 0, 255).astype(np.uint8)
    theirs = dn.image.resize(dn.image.from_array(other), W, H)[np.newaxis]
    found = only(explained(theirs), "input.decoder")
    assert 0.5 < float(found.values["levels"]) <= 2.01
    assert found.words.endswith("another decoder of JPEG, no fault")


@pytest.mark.parametrize("what", ["shift", "brightness", "blur", "many levels", "mean"])
def test_other_small_differences_are_no_decoder(what: str) -> None:
    x = STRETCHED.astype(np.float64)
    x = (x + np.roll(x, 1, 2) + np.roll(x, 1, 3) + np.roll(x, -1, 2) + np.roll(x, -1, 3)) / 5  # so that steps are small
    base = x.astype(np.float32)
    grain = np.random.default_rng(4).normal(0, 0.2 / 255, x.shape)
    apart = {
        "shift": 0.05 * np.gradient(x, axis=3),
        "brightness": 0.01 * (x - x.mean()),
        "blur": 0.05 * (np.gradient(np.gradient(x, axis=3), axis=3) + np.gradient(np.gradient(x, axis=2), axis=2)),
        "many levels": grain * 40,
        "mean": np.full(x.shape, 1 / 255),
    }[what]
    theirs = (x + apart + grain).astype(np.float32)
    found = list(given(place_of(base, theirs, None), lambda hypothesis: 1e6))
    assert not [hypothesis for hypothesis in found if hypothesis.kind == "input.decoder"]


def test_another_picture_is_not_explained() -> None:
    assert explained(np.random.default_rng(8).random(STRETCHED.shape, np.float32)) == []


def test_without_the_picture_its_fit_is_not_guessed() -> None:
    assert explained(dn.image.letterbox(PICTURE, W, H)[np.newaxis], None) == []
