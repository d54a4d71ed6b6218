"""Trouble with pictures that users of other programs have reported, each as its smallest input."""

from __future__ import annotations

import numpy as np
import pytest

import pydarknetbn as dn
from nets import cfg_of, noise, ramp, weights_of
from pydarknetbn import image as im
from pydarknetbn._native import Array
from pydarknetbn.dialect import DIALECTS

FIRST_PLANE = cfg_of("conv filters=1 activation=linear", w=2, h=2)


def first_plane(x: Array) -> Array:
    """What a network of 2 x 2 sees as its first channel."""
    return dn.load(FIRST_PLANE, weights_of(np.array([0, 1, 0, 0], np.float32))).forward(x)[0][0, 0]


def test_red_pixel_is_1_in_the_first_plane_of_the_network():
    frame = np.zeros((2, 4, 3), np.uint8)
    frame[0, 2] = 255, 0, 0
    for pixels in (frame[:, ::2], np.asfortranarray(frame[:, ::2]), frame[:, ::2][::-1].copy()[::-1]):
        assert first_plane(im.from_array(pixels)[np.newaxis]).tolist() == [[0, 1], [0, 0]]


def test_frame_in_the_order_of_opencv_is_swapped_by_name():
    frame = np.zeros((2, 2, 3), np.uint8)
    frame[0, 1] = 0, 0, 255
    assert not first_plane(im.from_array(frame)[np.newaxis]).any()
    assert first_plane(im.rgbgr(im.from_array(frame))[np.newaxis]).tolist() == [[0, 1], [0, 0]]


def test_network_takes_planes_as_they_lie_and_refuses_what_would_need_a_copy():
    planes = noise(1, 3, 2, 2)
    assert np.array_equal(first_plane(planes), planes[0, 0])
    for other in (np.asfortranarray(planes), planes[:, :, ::-1], noise(1, 3, 2, 4)[..., ::2]):
        with pytest.raises(dn.ShapeError, match="C-contiguous"):
            first_plane(other)
    for kind in (np.uint8, np.float64):
        with pytest.raises(dn.DtypeError, match=f"expected x of float32, got {np.dtype(kind)}"):
            first_plane(planes.astype(kind))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_letterbox_and_stretch_are_two_names_that_never_stand_for_each_other(dialect):
    net, seen = dn.load(cfg_of("max size=1", "yolo mask=0 num=1 classes=1 anchors=1,1", w=4, h=4, c=6), dialect=dialect), {}
    picture = np.tile(ramp(1, 1, 6) / 8, (1, 6, 4, 1))[0]
    for how in ("letterbox", "stretch"):
        net.detect(picture, resize=how)
        seen[how] = net.layers[1].output[0, 2].copy()  # widths, which the head passes on as they are
    assert (seen["letterbox"][[0, 3]] == 0.5).all()
    assert seen["letterbox"][1].tolist() == seen["letterbox"][2].tolist() == seen["stretch"][0].tolist()
    assert seen["stretch"][3].tolist() == pytest.approx([0, 5 / 24, 10 / 24, 15 / 24], abs=1e-7)
