"""What `stats` finds of rolling arrays: of a file alone, and against pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import pydarknetbn as dn
from calibrating import batches, mixed
from nets import cfg_of, noise
from pydarknetbn.calibration.findings import LayerFindings, Statistics
from pydarknetbn.calibration.statistics import statistics_of
from test_cli_calibrate import NET, Run, run

__all__ = ["run"]

CHANNELS = 6


def alone(**arrays: list[float]) -> LayerFindings:
    """What is found of a [batchnorm] with these arrays, without pictures."""
    return statistics_of(_net(**arrays)).layers[0]


def _net(**arrays: list[float]) -> dn.Network:
    net = dn.load(cfg_of("batchnorm", c=CHANNELS), None)
    given: dict[str, Any] = {"rolling_mean": [0.5] * CHANNELS, "rolling_variance": [1.5] * CHANNELS, "scales": [2.0] * CHANNELS}
    for name, values in (given | arrays).items():
        setattr(net.layers[0], name, np.array(values, np.float32))
    return net


def found(**channels: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    return channels


# --- of a file alone ------------------------------------------------------------------------------------------------------------


def test_a_healthy_layer_has_no_finding() -> None:
    layer = alone()
    assert (layer.channels, layer.gains) == ({}, {})
    assert Statistics((layer,)).exit_code == 0


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"rolling_variance": [1, -1, np.nan, np.inf, 1, 1]}, found(invalid=(1, 2, 3))),
        ({"rolling_mean": [1, 1, 1, 1, np.nan, 1]}, found(invalid=(4,))),
        ({"rolling_mean": [0] * 6, "rolling_variance": [0] * 6}, found(initial=(0, 1, 2, 3, 4, 5))),
        ({"rolling_mean": [0] * 6, "rolling_variance": [1] * 6}, found(initial=(0, 1, 2, 3, 4, 5))),
        ({"rolling_variance": [1, 0, 1, 1, 1, 1]}, found(constant=(1,), tiny=(1,))),
        ({"rolling_variance": [1, 2, 9e-4, 1e-3, 3e-8, 1]}, found(tiny=(2, 4))),
        ({"scales": [2, -2, 0, 1e-3, -1e-3, 2.1e-3]}, found(dead=(2,))),
        ({"scales": [2, -2, 0, 2, -1e-3, 2.1e-3]}, found(dead=(2, 4))),
    ],
    ids=["variance", "mean", "start-0", "start-1", "constant", "tiny", "dead", "dead-median"],
)
def test_findings_of_a_file(arrays: dict[str, list[float]], expected: dict[str, tuple[int, ...]]) -> None:
    assert alone(**arrays).channels == expected


def test_a_tiny_variance_alone_is_a_note_with_the_gain_of_each_epsilon() -> None:
    """3e-8 under pjreddie's epsilon of 1e-6 beside the root: 1 / (sqrt(3e-8) + 1e-6)."""
    layer = alone(rolling_variance=[1, 1, 1, 1, 3e-8, 1])
    assert Statistics((layer,)).exit_code == 0
    assert layer.least == 4
    assert layer.gains["√v+1e-06"] == pytest.approx(5740.4, rel=1e-4)
    assert layer.gains["√(v+1e-06)"] == pytest.approx(985.33, rel=1e-4)
    assert layer.gains["√(v+0.001)"] == pytest.approx(31.622, rel=1e-4)
    own = {"pjreddie-cpu": 5740.4, "alexeyab-cpu": 315.75}
    for profile, gain in own.items():
        net = dn.load(cfg_of("batchnorm", c=1), None, dialect=profile.removesuffix("-cpu"), profile=profile)
        net.layers[0].rolling_mean[...], net.layers[0].rolling_variance[...] = 1, 3e-8
        assert statistics_of(net).layers[0].gains["profile"] == pytest.approx(gain, rel=1e-4)


# --- against pictures -----------------------------------------------------------------------------------------------------------


def against(x: Any, **arrays: list[float]) -> LayerFindings:
    return statistics_of(_net(**arrays), [x]).layers[0]


def test_statistics_that_fit_the_pictures_are_no_finding_and_a_calibrated_network_has_none() -> None:
    net = mixed()
    net.calibrate(batches())
    statistics = statistics_of(net, batches())
    assert (statistics.counts, statistics.exit_code, statistics.images) == ({}, 0, 19)
    assert all(np.all(layer.measured.drift < 1e-6) for layer in statistics.layers if layer.measured)


def test_stale_is_over_a_deviation_or_ten_times() -> None:
    """Of a uniform x from 0 to 1: mean .5, variance 1/12, deviation .289."""
    x = noise(8, CHANNELS, 8, 8)
    mean = [0.5, 0.5 + 0.26, 0.5 + 0.32, 0.5, 0.5, 0.5]
    variance = [1 / 12, 1 / 12, 1 / 12, 9 / 12, 11 / 12, 1 / 12 / 11]
    layer = against(x, rolling_mean=mean, rolling_variance=variance)
    assert layer.channels == {"stale": (2, 4, 5)}
    assert layer.measured is not None
    assert layer.measured.n == 512
    assert layer.measured.mean_drift[2] == pytest.approx(1.1, abs=0.1)


def test_constant_is_one_value_up_to_rounding_and_not_also_stale_or_dead() -> None:
    x = noise(8, CHANNELS, 8, 8)
    x[:, 1], x[:, 3] = 7, 0
    x[:, 4] = 1e4 + (x[:, 4] > 0.5) * np.float32(1e-3)  # one step of its floats
    layer = against(x, rolling_variance=[1 / 12] * 6)
    assert layer.channels == {"constant": (1, 3, 4)}


def test_dead_is_one_value_behind_the_activation() -> None:
    """A relu whose bias is far below all that is normalised; a scale of 0."""
    net = mixed(cfg_of("conv filters=4 size=3 pad=1 batch_normalize=1 activation=relu"))
    net.layers[0].biases[...], net.layers[0].scales[...] = [0, -50, 0, 0], [1, 1, 0, 1]
    layer = statistics_of(net, batches()).layers[0]
    assert layer.channels["dead"] == (1, 2)


def test_a_stale_layer_does_not_make_those_behind_it_stale() -> None:
    net = mixed()
    net.calibrate(batches())
    net.layers[1].rolling_variance[...] *= 100
    statistics = statistics_of(net, batches())
    assert [list(layer.channels) for layer in statistics.layers] == [[], ["stale"], [], [], []]
    assert statistics.worst_first[0].layer == 1
    assert statistics.exit_code == 1


def test_the_network_stays_as_it_is() -> None:
    net = mixed()
    before = net.to_bytes()
    statistics_of(net, batches())
    assert net.to_bytes() == before


# --- the verb -------------------------------------------------------------------------------------------------------------------


def test_the_verb_shows_the_worst_layer_first_and_ends_with_1(run: Run) -> None:
    assert run("calibrate", *NET, "pictures", "-o", "good.weights")[0] == 0
    net = dn.load(NET[0], "good.weights")
    net.layers[2].rolling_mean[1] += 1000
    net.save("stale.weights")
    code, out, told = run("stats", NET[0], "stale.weights", "pictures")
    lines = out.splitlines()
    assert (code, told) == (1, "")
    assert lines[0].split("  ")[0] == "layer"
    assert lines[1].split()[:2] == ["2", "convolutional"]
    assert "stale" in lines[1]
    assert lines[-1] == "3 batchnorms, over 7 pictures: something to look at"
    code, out, told = run("stats", NET[0], "good.weights", "pictures")
    assert (code, told) == (0, "")
    assert out.splitlines()[-1] == "3 batchnorms, over 7 pictures: nothing wrong"


def test_the_verb_without_pictures_looks_at_the_file_alone(run: Run) -> None:
    dn.load(NET[0], None).save("new.weights")
    code, out, _ = run("stats", NET[0], "new.weights")
    assert code == 1
    assert "rolling arrays as they start: no training forward ever moved them" in out
    assert out.splitlines()[-1] == "3 batchnorms, from the file alone: something to look at"


def test_json_has_every_layer_in_order(run: Run) -> None:
    code, out, _ = run("stats", *NET, "pictures", "--json")
    document = json.loads(out)
    assert code == document["exit_code"]
    assert document["images"] == 7
    net = dn.load(*NET)
    assert [layer["layer"] for layer in document["layers"]] == [
        layer.index for layer in net.layers if "rolling_mean" in layer.params
    ]
    assert len(document["layers"][0]["measured"]["mean_drift"]) == document["layers"][0]["count"]


def test_the_plot_is_a_picture_of_both_quantities(run: Run) -> None:
    """Channels with a fault are drawn in a colour that nothing else has."""
    accent = (0xC2, 0x48, 0x0C)
    net = dn.load(*NET)
    net.calibrate([noise(4, net.c, net.h, net.w)])
    net.save("fits.weights")
    net.layers[2].rolling_variance[...] = -1
    net.save("wrong.weights")
    for name, faults in (("fits", False), ("wrong", True)):
        run("stats", NET[0], f"{name}.weights", "--plot", f"{name}.png")
        with Image.open(f"{name}.png") as picture:
            colours = {colour for _, colour in picture.convert("RGB").getcolors(picture.width * picture.height) or []}
            assert picture.size == (2200, 1288)
        assert (accent in colours) == faults


def test_the_page_needs_no_other_file(run: Run) -> None:
    pytest.importorskip("plotly", reason="plotly is not installed")
    run("stats", *NET, "pictures", "--plot", "plot.html")
    text = Path("plot.html").read_text(encoding="utf-8")
    assert "rolling mean off by, in measured deviations" in text
    assert "<script src=" not in text


def test_a_plot_of_another_kind_is_refused(run: Run) -> None:
    code, _, told = run("stats", *NET, "--plot", "plot.svg")
    assert code == 2
    assert "plot.svg: expected a file that ends in .html or .png" in told
    assert not Path("plot.svg").exists()
