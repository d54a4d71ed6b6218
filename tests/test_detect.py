"""From a picture to boxes: what the forks' programs recorded, and the formula of a head in float64."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import libm
import pydarknetbn as dn
from core import recorded_files
from nets import FASTEST, TINY, cfg_of, noise, recorded_run, tiny_files, tiny_yolo
from pydarknetbn._native import Array
from pydarknetbn.boxes import Detections, NmsKind, decode, kept, suppress
from pydarknetbn.dialect import DIALECTS, PROFILES

KINDS: dict[str, NmsKind] = {"nms_sort": "sort", "greedy_nms": "greedynms", "diou_nms": "diounms"}
RELATIVE = 1e-6  # another libm's exp may be an ulp off, and so may what follows from it


def boxes_of(net: dn.Network, size: tuple[int, int], thresh: float, *, letter: bool, relative: bool = True) -> Detections:
    """What the heads of a network hold after a forward."""
    heads: list[Any] = [(layer.index, layer.native, layer.type) for layer in net.heads]
    rule = PROFILES[net.profile].layers
    return decode(heads, 0, picture_size=size, net_size=(net.w, net.h), thresh=thresh, letter=letter, rule=rule, relative=relative)


def rows(found: Detections) -> Array:
    """x y w h objectness probabilities…, in an order that does not depend on theirs."""
    return by_box(np.concatenate([found["box"], found["objectness"][:, None], found["probs"]], axis=1))


def by_box(table: Array) -> Array:
    return table[np.lexsort(np.round(table[:, :4], 3).T)]


# --- recorded -------------------------------------------------------------------------------------------------------------------


def heads_only(cases: list[Any]) -> list[Any]:
    """Of the recorded nets those with detections; hank-ai leaves the rows of [region] at zero."""
    return [case for case in cases if case.values[0] is None or has_rows(case.values[0])]


def has_rows(path: Path) -> bool:
    with np.load(path) as arrays:
        return "dets.raw" in arrays and bool(arrays["dets.raw"].any())


@pytest.mark.parametrize("path", heads_only(recorded_files("[ln]*s/*-cpu/*.npz")))
def test_boxes_of_a_whole_net_are_the_recorded_ones(path, functions):
    net, recorded = recorded_run(path)
    size = tuple(json.loads(path.with_suffix(".json").read_text())["image_wh"])
    names = [name for name in recorded if re.fullmatch(r"dets\.(letter_)?(raw|nms_sort|greedy_nms|diou_nms)", name)]
    assert "dets.raw" in names
    for name in names:
        found = boxes_of(net, size, 0.1, letter="letter" in name or net.dialect == "pjreddie")
        kind = next((kind for end, kind in KINDS.items() if name.endswith(end)), None)
        if kind:
            found = suppress(found, kind=kind, thresh=0.45, rule=PROFILES[net.profile].layers)
        assert len(found) == len(recorded[name])
        off = 0 if libm.is_the_recorders() else RELATIVE
        assert np.allclose(rows(found), by_box(recorded[name]), rtol=off, atol=off), name


@pytest.mark.parametrize("name", FASTEST)
@pytest.mark.parametrize("profile", ["alexeyab-cpu", "hank-ai-cpu"])
def test_real_model_finds_the_recorded_boxes(golden, models, name, profile, functions):
    folder = golden / "yolo-fastest" / ("hank-ai" if profile == "hank-ai-cpu" else "")
    with np.load(golden / "yolo-fastest" / "dog_320.npz") as arrays:
        x = arrays["input"]
    with np.load(folder / f"{name}.npz") as arrays:
        recorded = {kind: arrays[f"unfused.dets.t0.25.{end}"] for end, kind in KINDS.items() if end != "diou_nms"}
    net = dn.load(models / f"{name}.cfg", models / f"{name}.weights", profile=profile)
    net.forward(x)
    for kind, want in recorded.items():
        found = boxes_of(net, (768, 576), 0.25, letter=False)
        left = kept(suppress(found, kind=kind, thresh=0.45, rule=PROFILES[profile].layers))
        assert len(left) == len(want)
        off = 0 if libm.is_the_recorders() else 1e-4
        assert np.allclose(rows(left), by_box(want), rtol=off, atol=off)


@pytest.mark.parametrize(("name", "picture"), [*((name, "dog") for name in FASTEST), ("yolo-fastest-1.1_body", "person")])
def test_real_picture_holds_the_recorded_objects(golden, models, name, picture):
    file, key = (f"{name}.npz", "unfused.dets") if picture == "dog" else ("person_320_body.npz", "body.dets")
    with np.load(golden / "yolo-fastest" / file) as arrays:
        want = arrays[f"{key}.t0.25.greedy_nms"]
    path = models / f"{picture}.jpg"
    net = dn.load(models / f"{name}.cfg", models / f"{name}.weights")
    found = net.detect(path)
    with Image.open(path) as image:
        width, height = image.size
    got = by_box(
        np.concatenate([found["box"] / [width, height, width, height], found["prob"][:, None], found["class_id"][:, None]], 1)
    )
    want = by_box(want)
    sure = want[:, 5:].max(axis=1) > 0.27  # another JPEG decoder moves a probability by up to .02
    assert (got[:, 4] > 0.27).sum() == sure.sum()
    for row in want[sure]:
        near = np.abs(got[:, :4] - row[:4]).max(axis=1) < 0.02
        same = near & (got[:, 5] == row[5:].argmax())
        assert np.any(same & (np.abs(got[:, 4] - row[5:].max()) < 0.02)), row[:5]


# --- the formula ----------------------------------------------------------------------------------------------------------------

ANCHORS = np.array([[4, 5], [8, 7], [12, 16], [24, 20]], np.float64)
MASKS = {7: (2, 3), 12: (0, 1)}


def expected(net: dn.Network, size: tuple[int, int], *, letter: bool) -> dict[tuple[int, int, int], tuple[list[float], float]]:
    """(layer, anchor, cell) -> box in pixels and objectness, in float64 from the logits, for a net of 32 x 32."""
    scale = min(32 / size[0], 32 / size[1])
    used = np.array([int(size[0] * scale), int(size[1] * scale)] if letter else [32, 32], np.float64)
    found = {}
    for index, mask in MASKS.items():
        logits = net.layers[index - 1].output[0].astype(np.float64)
        side = logits.shape[1]
        for anchor, cell in np.ndindex(2, side * side):
            tx, ty, tw, th, to = logits[8 * anchor : 8 * anchor + 5, cell // side, cell % side]
            centre = (np.array([cell % side, cell // side]) + 1 / (1 + np.exp([-tx, -ty]))) * 32 / side
            extent = np.exp([tw, th]) * ANCHORS[mask[anchor]]
            pixels = np.concatenate([centre - (32 - used) / 2, extent]) / np.tile(used, 2) * np.tile(size, 2)
            found[index, anchor, cell] = list(pixels), 1 / (1 + np.exp(-to))
    return found


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("size", [(48, 32), (20, 40), (32, 32)])
@pytest.mark.parametrize("how", ["letterbox", "stretch"])
def test_boxes_are_in_pixels_of_the_picture(dialect, size, how):
    net = tiny_yolo(dialect=dialect)
    picture = noise(3, size[1], size[0])
    found = net.detect(picture, resize=how, nms=1, thresh=0.25)
    net.forward(dn.image.fit(picture, 32, 32, how=how)[np.newaxis])  # keeps the logits
    want = expected(net, size, letter=how == "letterbox")
    assert len(found) > 10
    for row in found:
        box, objectness = want[int(row["layer"]), int(row["anchor"]), int(row["cell"])]
        assert row["box"] == pytest.approx(box, abs=1e-4, rel=2e-6)  # a dozen float32 steps
        assert row["objectness"] == pytest.approx(objectness, abs=1e-6)
        assert row["prob"] == row["probs"].max() > 0.25


# --- what goes in ---------------------------------------------------------------------------------------------------------------


def test_path_picture_and_array_find_the_same(tmp_path):
    cfg, weights, picture = tiny_files(tmp_path)
    net = dn.load(cfg, weights)
    with Image.open(picture) as opened:
        image = opened.copy()
    pixels = np.asarray(image).transpose(2, 0, 1) / np.float32(255)
    sources = [picture, str(picture), picture.read_bytes(), image, np.ascontiguousarray(pixels), pixels]
    found = [net.detect(source).tobytes() for source in sources]
    assert found == [found[0]] * len(sources)
    assert len(net.detect(picture)) > 5


def test_list_gives_a_list_each_as_alone():
    net, pictures = tiny_yolo(), [noise(3, 32, 48), noise(3, 8, 8)]
    assert [found.tobytes() for found in net.detect(pictures)] == [net.detect(picture).tobytes() for picture in pictures]
    assert net.detect(()) == []
    assert isinstance(net.detect(pictures[0]), Detections)


def test_names_come_from_beside_the_cfg_or_from_the_caller():
    net, x = tiny_yolo(), noise(3, 32, 48)
    assert {row["name"] for row in net.detect(x).to_json()} <= {"circle", "square", "triangle"}
    assert {row["name"] for row in net.detect(x, names=["a", "b"]).to_json()} <= {"a", "b", None}
    json.dumps(net.detect(x).to_json())


def test_threshold_and_overlap_thin_out():
    net, x = tiny_yolo(), noise(3, 32, 48)
    every, some = net.detect(x, thresh=0.1, nms=1), net.detect(x, thresh=0.45, nms=1)
    assert len(every) > len(some) > 0
    assert some["prob"].min() > 0.45
    assert len(net.detect(x, thresh=0.1, nms=0.2)) < len(every)
    assert len(net.detect(x, thresh=1)) == 0


HEADS = "yolo num=1 mask=0 classes=1 anchors=4,4"


@pytest.mark.parametrize(
    ("first", "last", "kind"), [("", "nms_kind=greedynms", "greedynms"), ("nms_kind=greedynms", "", "default"), ("", "", "default")]
)
def test_suppression_is_the_last_heads(first, last, kind):
    conv = "conv filters=6 activation=linear"
    net = dn.load(cfg_of(conv, f"{HEADS} {first}", conv, f"{HEADS} {last}", w=16, h=16), seed=2)
    x = noise(3, 16, 16)
    assert net.detect(x).tobytes() == net.detect(x, nms_kind=kind).tobytes()
    assert net.detect(x, nms_kind="greedynms").tobytes() != net.detect(x, nms_kind="sort").tobytes()


@pytest.mark.parametrize("beta", [0.1, 0.6, 3])
def test_suppression_takes_its_exponent_from_the_cfg(beta):
    conv = "conv filters=6 activation=linear"
    net = dn.load(cfg_of(conv, f"{HEADS} nms_kind=diounms beta_nms={beta}", w=16, h=16), seed=2)
    x = noise(3, 16, 16)
    every = net.detect(x, nms=1)
    left = [len(dn.nms(every, kind="diounms", thresh=0.2, beta=each)) for each in (0.1, 0.6, 3)]
    assert len(set(left)) == 3
    assert len(net.detect(x, nms=0.2)) == left[[0.1, 0.6, 3].index(beta)]


@pytest.mark.parametrize(("dialect", "how"), [("pjreddie", "letterbox"), ("alexeyab", "stretch"), ("hank-ai", "stretch")])
def test_picture_is_fitted_as_the_dialects_detector_does(dialect, how):
    net, x = tiny_yolo(dialect=dialect), noise(3, 32, 48)
    assert net.default_resize == how
    assert net.detect(x).tobytes() == net.detect(x, resize=how).tobytes()


def test_letter_box_in_net_asks_for_a_letterbox():
    text = TINY.read_bytes().replace(b"[net]", b"[net]\nletter_box=1")
    assert dn.load(text).default_resize == "letterbox"


# --- misuse ---------------------------------------------------------------------------------------------------------------------

WRONG = {
    "pixels of 8 bits": (np.zeros((32, 48, 3), np.uint8), dn.DtypeError, "from_array"),
    "a batch": (noise(1, 3, 32, 48), dn.ShapeError, r"expected float32 \(c, h, w\)"),
    "one channel": (noise(1, 32, 48), dn.ShapeError, r"picture of shape \(3, height, width\), got \(1, 32, 48\)"),
    "no picture": (b"no picture at all", dn.ImageError, "expected a picture"),
    "a missing file": ("no/such.png", FileNotFoundError, "no/such.png"),
    "a number": (3, dn.DtypeError, "got int"),
}


@pytest.mark.parametrize(("picture", "kind", "words"), WRONG.values(), ids=WRONG)
def test_what_is_no_picture_is_refused(picture, kind, words):
    with pytest.raises(kind, match=words):
        tiny_yolo().detect(picture)


def test_unknown_way_of_fitting_or_suppressing_names_those_that_there_are():
    with pytest.raises(dn.ImageError, match='"letterbox" or "stretch", got \'crop\''):
        tiny_yolo().detect(noise(3, 32, 48), resize="crop")
    with pytest.raises(ValueError, match="greedynms, obj, sort, default\\), got 'soft'"):
        tiny_yolo().detect(noise(3, 32, 48), nms_kind="soft")


@pytest.mark.parametrize(
    "option", [{"thresh": -1.0}, {"thresh": 2.0}, {"thresh": float("nan")}, {"nms": -1.0}, {"nms": 5.0}], ids=str
)
def test_threshold_outside_0_to_1_is_refused(option):
    with pytest.raises(ValueError, match="from 0 to 1"):
        tiny_yolo().detect(noise(3, 32, 48), **option)


def test_network_without_a_head_says_so():
    with pytest.raises(dn.UnsupportedError, match=r"has no head, such as a \[yolo\] or \[region\] layer"):
        dn.load(cfg_of("conv filters=1 activation=linear")).detect(noise(3, 8, 8))
