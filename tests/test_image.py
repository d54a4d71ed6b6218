"""Picture functions: bit equality with the recorded forks, literal cases, and arrays and sizes that are refused."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from pydarknetbn import image as im
from pydarknetbn.errors import DtypeError, ImageError, ShapeError

SAMPLE = Path(__file__).parent / "golden" / "image" / "sample.npz"


def from_env(name: str) -> Path:
    if name not in os.environ:
        pytest.skip(f"{name} is not set: the folder with the whole recorded data or models")
    return Path(os.environ[name])


def ramp(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32).reshape(1, 1, -1)


# Recorded numbers of the forks


def assert_recorded(path: Path, expected_results: int) -> None:
    compared = 0
    with np.load(path) as recorded:
        for key in recorded.files:
            case, what = key.split(".")
            if what == "in":
                continue
            source, target = recorded[f"{case}.in"], case.split("__")[1]
            h, w = (int(part[1:]) for part in target.split("_"))
            calls = {
                "resize": lambda source=source, w=w, h=h: im.resize(source, w, h),
                "letterbox": lambda source=source, w=w, h=h: im.letterbox(source, w, h),
                "rgbgr": lambda source=source: im.rgbgr(source),
                "crop_dx-2_dy1_h6_w7": lambda source=source: im.crop(source, -2, 1, 7, 6),
                "resize_min12": lambda source=source: im.resize_min(source, 12),
            }
            result = calls[what]()
            assert result.dtype == np.float32, key
            assert result.flags.c_contiguous, key
            assert result.shape == recorded[key].shape, key
            assert result.tobytes() == recorded[key].tobytes(), key
            compared += 1
    assert compared == expected_results


def test_sample_of_the_forks_is_bit_equal():
    assert_recorded(SAMPLE, 29)


@pytest.mark.parametrize("profile", ["pjreddie-cpu", "alexeyab-cpu"])
def test_everything_recorded_of_the_forks_is_bit_equal(profile):
    assert_recorded(from_env("PYDARKNETBN_GOLDEN") / "image" / f"{profile}.npz", 48)


def test_dog_jpg_resized_is_what_the_fork_fed_its_network():
    golden, models = from_env("PYDARKNETBN_GOLDEN"), from_env("PYDARKNETBN_MODELS")
    with np.load(golden / "yolo-fastest" / "dog_320.npz") as recorded:
        expected = recorded["input"][0]
    difference = np.abs(im.resize(models / "dog.jpg", 320, 320) - expected)
    # the fork decodes JPEG with stb, Pillow with libjpeg: up to a few levels a pixel apart, far below 1 on average
    assert difference.max() * 255 <= 2.7
    assert difference.mean() * 255 <= 0.2


# The formulas


def test_resize_is_corner_aligned():
    # half-pixel centres would give 0, 5, 11.667, 18.333, 25, 30; the forks' float32 really ends on 18 + 2**-19
    assert im.resize(ramp(0, 10, 20, 30), 6, 1).ravel().tolist() == [0, 6, 12, 18 + 2**-19, 24, 30]


def test_letterbox_of_6x4_in_4x4_has_grey_rows_above_and_below():
    row = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    picture = np.tile(ramp(*row), (3, 4, 1))
    boxed = im.letterbox(picture, 4, 4)
    assert boxed[:, [0, 3]].tolist() == [[[0.5] * 4] * 2] * 3
    # content is 4x2; columns lie at 0, 5/3, 10/3, 5 of a ramp of .2 a column; the values are rounded to 1e-6
    assert np.round(boxed[:, 1:3].astype(float), 6).tolist() == [[[0.0, 0.333333, 0.666667, 1.0]] * 2] * 3


def test_stretch_of_the_same_picture_has_no_grey_row():
    picture = np.tile(ramp(0.0, 0.2, 0.4, 0.6, 0.8, 1.0), (3, 4, 1))
    assert not (im.resize(picture, 4, 4) == 0.5).any()


def test_resize_agrees_with_float64_interpolation():
    generator = np.random.default_rng(5)
    for source_h, source_w, h, w in [(7, 5, 20, 3), (40, 33, 9, 64), (2, 2, 13, 17), (64, 48, 31, 47), (3, 60, 3, 7)]:
        picture = generator.random((2, source_h, source_w), dtype=np.float32)
        columns, rows = np.linspace(0, source_w - 1, w), np.linspace(0, source_h - 1, h)
        part = [[np.interp(columns, np.arange(source_w), row) for row in plane.astype(float)] for plane in picture]
        wide = np.array(part)
        expected = np.stack([[np.interp(rows, np.arange(source_h), plane[:, x]) for x in range(w)] for plane in wide]).transpose(
            0, 2, 1
        )
        # a float32 position up to 64 is off by 2**-18 at most, once in each pass, and a pixel's slope is below 1;
        # the last row has a test of its own
        assert np.abs(im.resize(picture, w, h) - expected)[:, :-1].max() < 2 * 2**-18


def test_last_row_is_dark_where_the_forks_round_its_position_down():
    # 41 * (1.f / 41) is 1 - 2**-24, so the last row is 2**-24 of the first; both values recorded from pjreddie's C
    resized = im.resize(np.array([[[0.25], [1.0]]], dtype=np.float32), 1, 42)
    assert resized[0, -1, 0] == np.float32(2**-26)
    assert resized[0, -2, 0] == float.fromhex("0x1.f6a256p-1")


def test_last_column_is_copied_where_its_position_is_rounded_down():
    assert im.resize(ramp(0.25, 1), 42, 1)[0, 0, -1] == 1


def test_equal_size_is_a_copy_of_every_value():
    picture = np.array([[[np.nan, -0.0], [np.inf, 1e-45]]], dtype=np.float32)
    copy = im.resize(picture, 2, 2)
    assert copy.tobytes() == picture.tobytes()
    assert not np.shares_memory(copy, picture)


def test_values_that_are_not_finite_pass_as_in_c_without_a_warning():
    picture = np.tile(ramp(np.inf, 0, np.nan, 3e38, -3e38), (1, 2, 1))
    nan, big = np.nan, np.float32(3e38)
    # recorded from pjreddie's C: 0 * inf and 0 * NaN reach the neighbours
    np.testing.assert_array_equal(im.resize(picture, 9, 2)[0, 0], [nan, nan, nan, nan, nan, nan, big, 0, -big])


def test_source_of_width_or_height_1_is_repeated():
    assert im.resize(np.array([[[1], [3]]], dtype=np.float32), 3, 3).tolist() == [[[1] * 3, [2] * 3, [3] * 3]]
    assert im.resize(ramp(1, 3), 3, 3).tolist() == [[[1, 2, 3]] * 3]
    assert im.resize(ramp(7), 2, 2).tolist() == [[[7, 7], [7, 7]]]


def test_target_of_width_1_is_the_last_column():
    assert im.resize(ramp(1, 2, 3), 1, 2).tolist() == [[[3], [3]]]


def test_target_of_height_1_is_the_first_row_where_the_forks_divide_by_zero():
    picture = np.array([[[1, 3], [5, 7]]], dtype=np.float32)
    assert im.resize(picture, 3, 1).tolist() == [[[1, 2, 3]]]
    assert im.resize(picture, 1, 1).tolist() == [[[3]]]
    assert im.letterbox(np.ones((1, 2, 8), dtype=np.float32), 4, 4)[0, :, 0].tolist() == [0.5, 1, 0.5, 0.5]


def test_letterbox_puts_the_spare_column_right():
    boxed = im.letterbox(np.ones((1, 4, 1), dtype=np.float32), 4, 4)
    assert boxed[0, 0].tolist() == [0.5, 1, 0.5, 0.5]


@pytest.mark.parametrize(("w", "h", "left"), [(1000, 1, "416x0"), (1, 1000, "0x416")])
def test_letterbox_refuses_a_picture_of_which_nothing_would_be_left(w, h, left):
    with pytest.raises(ShapeError, match=f"{w}x{h}.*{left}"):
        im.letterbox(np.zeros((3, h, w), dtype=np.float32), 416, 416)


def test_crop_repeats_the_edge_however_far_outside():
    picture = np.arange(6, dtype=np.float32).reshape(1, 2, 3)
    assert im.crop(picture, 1, 0, 2, 2).tolist() == [[[1, 2], [4, 5]]]
    assert im.crop(picture, -1, 1, 5, 2).tolist() == [[[3, 3, 4, 5, 5]] * 2]
    assert im.crop(picture, -(10**30), 10**30, 2, 1).tolist() == [[[3, 3]]]


def test_resize_min_makes_the_shorter_side_the_size():
    assert im.resize_min(np.zeros((3, 23, 37), dtype=np.float32), 12).shape == (3, 12, 19)
    assert im.resize_min(np.zeros((3, 37, 23), dtype=np.float32), 12).shape == (3, 19, 12)


def test_rgbgr_swaps_channels_0_and_2_of_a_copy():
    picture = np.arange(4, dtype=np.float32).reshape(4, 1, 1)
    assert im.rgbgr(picture).ravel().tolist() == [2, 1, 0, 3]
    assert picture.ravel().tolist() == [0, 1, 2, 3]
    with pytest.raises(ShapeError, match="3 channels, got 2"):
        im.rgbgr(picture[:2])


def test_fit_takes_the_way_that_is_named():
    picture = np.random.default_rng(1).random((3, 4, 6), dtype=np.float32)
    assert im.fit(picture, 4, 4, how="letterbox").tobytes() == im.letterbox(picture, 4, 4).tobytes()
    assert im.fit(picture, 4, 4, how="stretch").tobytes() == im.resize(picture, 4, 4).tobytes()
    with pytest.raises(ImageError, match='"letterbox" or "stretch", got \'crop\''):
        im.fit(picture, 4, 4, how="crop")
    with pytest.raises(TypeError):
        im.fit(picture, 4, 4)


# Arrays that come in


def test_any_strides_and_channel_count_give_the_same_bits():
    picture = np.random.default_rng(2).random((5, 9, 8), dtype=np.float32)
    frozen = picture.copy()
    frozen.flags.writeable = False
    expected = im.resize(picture, 6, 7)
    for same in (np.asfortranarray(picture), picture[:, ::-1, ::-1].copy()[:, ::-1, ::-1], frozen):
        assert im.resize(same, 6, 7).tobytes() == expected.tobytes()
        assert im.crop(same, 2, -1, 4, 4).flags.c_contiguous
    assert expected.shape == (5, 7, 6)


@pytest.mark.parametrize("call", [im.resize, im.letterbox, lambda x, w, h: im.crop(x, 0, 0, w, h)])
def test_uint8_rows_columns_channels_is_refused_with_the_way_out(call):
    message = "expected float32 (c, h, w) in 0..1; for uint8 (h, w, 3) use pydarknetbn.image.from_array(...)"
    with pytest.raises(DtypeError) as caught:
        call(np.zeros((6, 4, 3), dtype=np.uint8), 2, 2)
    assert message in str(caught.value)
    assert "got uint8 (6, 4, 3)" in str(caught.value)


@pytest.mark.parametrize("dtype", ["float64", "float16", ">f4", "int32"])
def test_other_dtypes_are_refused(dtype):
    with pytest.raises(DtypeError, match="expected float32"):
        im.resize(np.zeros((3, 4, 4), dtype=dtype), 2, 2)


@pytest.mark.parametrize("shape", [(4, 4), (1, 3, 4, 4), (3, 0, 4), (0, 4, 4), (3, 4, 0)])
def test_other_ranks_and_empty_arrays_are_refused(shape):
    with pytest.raises(ShapeError, match=r"expected float32 \(c, h, w\)"):
        im.letterbox(np.zeros(shape, dtype=np.float32), 2, 2)


@pytest.mark.parametrize("bad", [0, -1, 2.0, "4", None, True])
def test_sizes_are_integers_of_at_least_1(bad):
    picture = np.zeros((3, 4, 4), dtype=np.float32)
    for call in (
        lambda: im.resize(picture, bad, 2),
        lambda: im.resize(picture, 2, bad),
        lambda: im.letterbox(picture, bad, 2),
        lambda: im.letterbox(picture, 2, bad),
        lambda: im.resize_min(picture, bad),
        lambda: im.crop(picture, 0, 0, bad, 2),
        lambda: im.crop(picture, 0, 0, 2, bad),
    ):
        with pytest.raises(ShapeError, match="expected an integer"):
            call()
    assert im.resize(picture, np.int64(2), np.uint8(3)).shape == (3, 3, 2)
