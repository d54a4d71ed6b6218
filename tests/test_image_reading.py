"""Reading pictures: levels to floats, files of every kind, and every way a file can be wrong."""

from __future__ import annotations

import io
import struct
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image

from pydarknetbn import image as im
from pydarknetbn.errors import DtypeError, ImageError, ShapeError


def png(w: int, h: int, depth: int, colour: int, rows: list[bytes], *chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG written by hand, so that no encoder decides what is in it."""
    header = struct.pack(">IIBBBBB", w, h, depth, colour, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    parts = [(b"IHDR", header), *chunks, (b"IDAT", data), (b"IEND", b"")]
    body = [struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in parts]
    return b"\x89PNG\r\n\x1a\n" + b"".join(body)


def encode(picture: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def levels(source: object) -> np.ndarray:
    """A loaded picture back in 8-bit levels, (3, h, w); exact, since level/255*255 rounds to the level."""
    return np.rint(im.load_image(source) * np.float32(255)).astype(int)


# 8-bit pixels


def test_each_level_is_divided_in_double_and_rounded_once():
    grey = np.arange(256, dtype=np.uint8).reshape(16, 16)
    expected = np.array([np.float32(level / 255.0) for level in range(256)], dtype=np.float32)
    assert im.from_array(grey)[1].tobytes() == expected.tobytes()


def test_red_is_plane_0_whatever_the_strides():
    pixels = np.zeros((2, 2, 3), dtype=np.uint8)
    pixels[0, 1] = 255, 51, 0
    expected = np.zeros((3, 2, 2), dtype=np.float32)
    expected[0, 0, 1], expected[1, 0, 1] = 1, np.float32(0.2)
    alpha = np.dstack([pixels, np.full((2, 2), 7, dtype=np.uint8)])
    reversed_twice = pixels[::-1, ::-1].copy()[::-1, ::-1]
    bgr = pixels[:, :, ::-1].copy()
    for same in (pixels, np.asfortranarray(pixels), reversed_twice, alpha, bgr[:, :, ::-1]):
        assert im.from_array(same).tobytes() == expected.tobytes()


def test_grey_arrays_fill_three_planes():
    grey = np.array([[0, 255]], dtype=np.uint8)
    assert im.from_array(grey).tolist() == im.from_array(grey[:, :, None]).tolist() == [[[0, 1]]] * 3


@pytest.mark.parametrize(
    ("pixels", "error", "hint"),
    [
        (np.zeros((3, 8, 8), dtype=np.uint8), ShapeError, "transpose"),
        (np.zeros((8, 8, 2), dtype=np.uint8), ShapeError, r"\(8, 8, 2\)"),
        (np.zeros((0, 8, 3), dtype=np.uint8), ShapeError, r"\(0, 8, 3\)"),
        (np.zeros(8, dtype=np.uint8), ShapeError, r"\(8,\)"),
        (np.zeros((8, 8, 3), dtype=np.float32), DtypeError, "float32"),
        ([[1, 2]], DtypeError, "list"),
    ],
)
def test_other_pixels_are_refused(pixels, error, hint):
    with pytest.raises(error, match=hint):
        im.from_array(pixels)


# Files


def test_path_bytes_file_and_pil_image_give_the_same_bits(tmp_path):
    pixels = np.random.default_rng(3).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    data, path = encode(Image.fromarray(pixels)), tmp_path / "a.png"
    path.write_bytes(data)
    expected = im.from_array(pixels).tobytes()
    file = io.BytesIO(b"prefix" + data)
    file.seek(6)
    for source in (path, str(path), data, bytearray(data), memoryview(data), file, Image.fromarray(pixels)):
        assert im.load_image(source).tobytes() == expected
    with path.open("rb") as opened:
        assert im.load_image(opened).tobytes() == expected
    assert im.resize(path, 3, 4).tobytes() == im.resize(im.from_array(pixels), 3, 4).tobytes()
    assert im.letterbox(Image.fromarray(pixels), 3, 4).shape == (3, 4, 3)


def test_grey_of_1_2_4_and_8_bits_is_spread_over_0_to_255():
    for depth, row, expected in [(1, 0b01000000, [0, 255]), (2, 0b01110000, [85, 255]), (4, 0x1E, [17, 238])]:
        assert levels(png(2, 1, depth, 0, [bytes([row])])).tolist() == [[expected]] * 3
    assert levels(png(2, 1, 8, 0, [b"\x03\xfe"])).tolist() == [[[3, 254]]] * 3


def test_16_bits_lose_the_lower_8():
    grey = png(3, 1, 16, 0, [bytes.fromhex("01ff 80ff ffff")])
    colour = png(1, 1, 16, 2, [bytes.fromhex("01ff 80ff ff00")])
    alpha = png(1, 1, 16, 6, [bytes.fromhex("01ff 80ff ff00 0000")])
    assert levels(grey).tolist() == [[[1, 128, 255]]] * 3
    assert levels(colour).ravel().tolist() == [1, 128, 255]
    assert levels(alpha).ravel().tolist() == [1, 128, 255]


def test_alpha_is_dropped_without_blending():
    assert levels(png(1, 1, 8, 6, [bytes([10, 20, 30, 0])])).ravel().tolist() == [10, 20, 30]
    assert levels(png(1, 1, 8, 4, [bytes([10, 0])])).ravel().tolist() == [10] * 3


def test_palette_is_resolved_and_its_transparency_ignored():
    palette = (b"PLTE", bytes([0, 0, 0, 10, 20, 30]))
    assert levels(png(1, 1, 8, 3, [b"\1"], palette)).ravel().tolist() == [10, 20, 30]
    assert levels(png(1, 1, 8, 3, [b"\1"], palette, (b"tRNS", b"\x80\x00"))).ravel().tolist() == [10, 20, 30]


def test_a_colour_declared_transparent_keeps_its_value():
    trns = (b"tRNS", struct.pack(">HHH", 10, 20, 30))
    assert levels(png(2, 1, 8, 2, [bytes([10, 20, 30, 1, 2, 3])], trns)).tolist() == [[[10, 1]], [[20, 2]], [[30, 3]]]


def test_exif_orientation_is_not_applied():
    exif = Image.Exif()
    exif[0x0112] = 6  # a camera turned by a quarter
    data = encode(Image.new("RGB", (20, 10)), "JPEG", exif=exif)
    assert im.load_image(data).shape == (3, 10, 20)


def test_other_colour_spaces_are_read_as_rgb():
    red = Image.new("RGB", (4, 4), (255, 0, 0))
    for mode in ("CMYK", "YCbCr"):
        # a level or so is lost between the spaces
        assert np.abs(levels(red.convert(mode))[:, 0, 0] - [255, 0, 0]).max() <= 2


@pytest.mark.parametrize("mode", ["I", "F"])
def test_pil_images_without_8_bit_meaning_are_refused(mode):
    with pytest.raises(ImageError, match=f"mode {mode}"):
        im.load_image(Image.new(mode, (2, 2)))


def test_what_is_no_picture_is_refused_with_its_name(tmp_path):
    page = tmp_path / "page.jpg"
    page.write_text("<html>not here</html>")
    with pytest.raises(ImageError, match=r"page\.jpg: expected a picture"):
        im.load_image(page)
    for data in (b"", b"\0" * 100):
        with pytest.raises(ImageError, match=f"picture of {len(data)} bytes: expected a picture"):
            im.load_image(data)


def test_every_truncation_of_a_png_is_an_image_error_or_whole():
    pixels = np.random.default_rng(4).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    data = encode(Image.fromarray(pixels))
    errors = 0
    for length in range(len(data)):
        try:
            assert im.load_image(data[:length]).tobytes() == im.from_array(pixels).tobytes()
        except ImageError:
            errors += 1
    assert errors > len(data) // 2


def test_a_truncated_jpeg_is_refused():
    data = encode(Image.effect_noise((64, 64), 50), "JPEG")
    with pytest.raises(ImageError, match="damaged or unreadable"):
        im.load_image(data[: len(data) // 2])


def test_a_missing_file_stays_a_file_not_found_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        im.load_image(tmp_path / "none.png")


@pytest.mark.parametrize(("limit", "action"), [(99, "default"), (99, "error"), (40, "default"), (40, "error")])
def test_pictures_over_pillows_pixel_limit_are_refused(monkeypatch, limit, action):
    # Pillow itself warns above the limit and fails above twice the limit
    data = encode(Image.new("RGB", (10, 10)))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    with warnings.catch_warnings(record=action == "default"):
        warnings.simplefilter(action)
        with pytest.raises(ImageError, match=f"over the limit of {limit} pixels.*MAX_IMAGE_PIXELS"):
            im.load_image(data)


@pytest.mark.parametrize("limit", [100, None])
def test_pictures_at_the_pixel_limit_or_without_one_are_read(monkeypatch, limit):
    data = encode(Image.new("RGB", (10, 10)))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    assert im.load_image(data).shape == (3, 10, 10)


@pytest.mark.parametrize(
    ("source", "found"),
    [(np.zeros((2, 2, 3), dtype=np.uint8), "uint8"), (7, "int"), (io.StringIO("x"), "a file open for text")],
)
def test_other_sources_are_refused(source, found):
    with pytest.raises(DtypeError, match=f"expected a path, bytes, a binary file or a PIL image, got {found}"):
        im.load_image(source)
