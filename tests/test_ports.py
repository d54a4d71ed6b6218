"""The doctor's test bench: right ports are right, and each fault changes what it says and nothing before it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from ports import inputs, matrix, networks, real_faults
from ports.as_onnx import values_of
from ports.as_torch import as_torch, torch
from ports.bn_faults import folded
from ports.graph import Graph, names_of
from ports.mutations import Mutation
from pydarknetbn.doctor.running import Runner

SEED = 1
SHARE = 1e-5  # of a value's range: sums in another order, through a whole network
KINDS = """
    input.scale input.normalization input.channels input.layout input.fit input.resize input.decoder
    batchnorm.epsilon batchnorm.batch_statistics batchnorm.rolling_not_loaded batchnorm.stale batchnorm.bessel
    batchnorm.scales_missing batchnorm.biases_missing batchnorm.permuted batchnorm.shifted batchnorm.forgotten batchnorm.twice
    batchnorm.wrong_input batchnorm.bias_kept
    convolution.padding convolution.stride convolution.groups convolution.dilation convolution.flipped convolution.axes
    convolution.order activation.kind activation.slope activation.mish
    maxpool.padding maxpool.side upsample.mode upsample.scale route.order route.group route.index
    shortcut.activation shortcut.weights shortcut.channels shortcut.index reorg.order dropout.active
    yolo.scale_x_y yolo.new_coords yolo.anchors yolo.double_sigmoid yolo.class_softmax half.precision
""".split()


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@torch.no_grad()
def torch_values(graph: Graph, x: np.ndarray) -> dict[str, np.ndarray]:
    return {name: value.float().numpy() for name, value in as_torch(graph).values(torch.from_numpy(x)).items()}


RUNS = {"torch": torch_values, "onnx": values_of}


def by_stage(graph: Graph, values: dict[str, np.ndarray]) -> dict[tuple[int, str], np.ndarray]:
    return {key: values[name] for key, name in names_of(graph).items()}


def farthest(case: matrix.Case, graph: Graph, backend: str) -> tuple[float, tuple[int, str]]:
    """The largest share of its range by which a value of a port is off, and which."""
    theirs = by_stage(graph, RUNS[backend](graph, case.x))
    found = []
    for step, ours in Runner(case.net).forward(case.x):
        key = step.layer, step.stage
        if key in theirs:
            assert theirs[key].shape == ours.shape, key
            found.append((float(np.abs(theirs[key].astype(np.float64) - ours).max() / np.ptp(ours)), key))
    assert len(found) == len(theirs)
    return max(found)


# --- right ports ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", RUNS)
@pytest.mark.parametrize("name", networks.NETWORKS)
def test_a_right_port_agrees_in_every_value(name, backend):
    case = matrix.case(name, SEED)
    share, where = farthest(case, case.graph, backend)
    assert share < SHARE, where
    assert set(names_of(case.graph)) >= {(layer.index, "post") for layer in case.net.layers}


@pytest.mark.parametrize("backend", RUNS)
@pytest.mark.parametrize("name", networks.NETWORKS)
def test_a_right_folded_port_agrees_in_every_value(name, backend):
    case = matrix.case(name, SEED)
    graph = folded(case.graph)
    assert not graph.where("batchnorm")
    share, where = farthest(case, graph, backend)
    assert share < SHARE, where


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_variances_span_what_epsilons_show_in(name):
    net = networks.network(name, SEED)
    variances = np.concatenate([layer.rolling_variance for layer in net.layers if "rolling_variance" in layer.shapes])
    assert variances.min() < 5e-4
    assert variances.max() > 5
    assert all(np.isfinite(array).all() for layer in net.layers for array in layer.params.values())


def test_a_seed_gives_the_same_weights_and_another_seed_others():
    assert networks.network("tiny", 3).to_bytes() == networks.network("tiny", 3).to_bytes()
    assert networks.network("tiny", 3).to_bytes() != networks.network("tiny", 4).to_bytes()


# --- faults ---------------------------------------------------------------------------------------------------------------------


def assert_stands_where_it_says(case: matrix.Case, clean: dict[tuple[int, str], np.ndarray], mutation: Mutation) -> None:
    """Values of layers before the fault are right, to the bit where nothing is folded; one of its own is not."""
    graph = mutation.graph(case.graph)
    values = by_stage(graph, torch_values(graph, case.x))
    first = min(mutation.layers)
    refolded = "folded with" in mutation.name
    for key, value in values.items():
        if key[0] < first:
            close = np.allclose(value, clean[key], rtol=0, atol=SHARE * np.ptp(clean[key]))
            assert close if refolded else np.array_equal(value, clean[key]), (mutation.name, key)
    changed = [not np.array_equal(value, clean[key], equal_nan=True) for key, value in values.items() if key[0] == first]
    assert any(changed), mutation.name


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_a_fault_changes_its_layer_and_none_before(name):
    case = matrix.case(name, SEED)
    clean = by_stage(case.graph, torch_values(case.graph, case.x))
    for mutation in [mutation for mutation in matrix.faults_of(name, SEED) if mutation.layers][::6]:
        assert_stands_where_it_says(case, clean, mutation)


@pytest.mark.long
@pytest.mark.parametrize("name", networks.NETWORKS)
def test_each_fault_changes_its_layer_and_none_before(name):
    case = matrix.case(name, SEED)
    clean = by_stage(case.graph, torch_values(case.graph, case.x))
    for mutation in matrix.faults_of(name, SEED):
        if mutation.layers:
            assert_stands_where_it_says(case, clean, mutation)


@pytest.mark.long
def test_each_kind_of_fault_shows_in_two_networks_or_more():
    shows: dict[str, set[str]] = {kind: set() for kind in KINDS}
    for cell in matrix.cells(SEED):
        asked = {kind for kind in cell.mutation.kinds if cell.case.name not in shows[kind]}
        if cell.backend == "torch" and asked and matrix.observable(cell) > matrix.VISIBLE:
            for kind in asked:
                shows[kind].add(cell.case.name)
    assert {kind: names for kind, names in shows.items() if len(names) < 2} == {}


def test_every_kind_has_a_fault_and_every_fault_a_kind_that_is_known():
    used = {kind for cell in matrix.cells(SEED) for kind in cell.mutation.kinds}
    assert used == set(KINDS)


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_both_frameworks_compute_a_fault_alike(name):
    """One is the other's check: a fault is written twice, but for dropout's random numbers."""
    case = matrix.case(name, SEED)
    for mutation in matrix.faults_of(name, SEED)[::14]:
        if mutation.kinds & {"dropout.active", "half.precision"} or not mutation.layers:
            continue
        graph = mutation.graph(case.graph)
        ours, theirs = by_stage(graph, torch_values(graph, case.x)), by_stage(graph, values_of(graph, case.x))
        for key, value in ours.items():
            if key[0] <= min(mutation.layers):
                finite = np.isfinite(value)
                assert np.array_equal(finite, np.isfinite(theirs[key])), (mutation.name, key)
                if finite.any():
                    apart = np.abs(value[finite].astype(np.float64) - theirs[key][finite]).max()
                    assert apart <= SHARE * np.abs(value[finite]).max(), (mutation.name, key)


def named(name: str, network: str = "tiny") -> Graph:
    found = next(mutation for mutation in matrix.faults_of(network, SEED) if mutation.name == name)
    return found.graph(matrix.case(network, SEED).graph)


def test_a_file_read_two_floats_late_gives_the_arrays_from_there_on():
    net, graph = matrix.case("tiny", SEED).net, named("file shifted by +2 from here, layer 7")
    block = np.concatenate([net.layers[7].params[name].ravel() for name in net.layers[7].params])
    bn, conv = graph["module.7.bn"].arrays, graph["module.7.conv"].arrays
    assert np.array_equal(bn["biases"], block[2:34])
    assert np.array_equal(bn["scales"], block[34:66])
    assert np.array_equal(conv["weights"].ravel()[:-2], block[4 * 32 + 2 :])
    assert np.array_equal(conv["weights"].ravel()[-2:], net.layers[8].biases[:2])


def test_a_file_read_one_float_early_begins_with_the_header():
    bn = named("arrays shifted by -1, everywhere")["module.0.bn"].arrays
    assert bn["biases"][0] == 0  # the upper half of the counter
    assert np.array_equal(bn["biases"][1:], matrix.case("tiny", SEED).net.layers[0].biases[:-1])


def test_there_are_23_orders_of_four_arrays():
    found = matrix.faults_of("tiny", SEED)
    everywhere = [mutation for mutation in found if "batchnorm.permuted" in mutation.kinds and "everywhere" in mutation.name]
    assert len(everywhere) == 23
    assert len({mutation.values["order"] for mutation in everywhere}) == 23


def test_reorg_by_channels_is_pixel_unshuffle():
    graph = named("reorg: channel first, layer 17")
    values = torch_values(graph, matrix.case("tiny", SEED).x)
    before = torch.from_numpy(values["module.16.act"])
    assert np.array_equal(values["module.17.reorg"], torch.nn.functional.pixel_unshuffle(before, 2).numpy())


# --- inputs ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "kernel", "reach"), [("bilinear", inputs.linear, 1), ("bicubic", inputs.cubic(-0.75), 2)])
def test_resizing_is_that_of_torch_and_opencv(mode, kernel, reach):
    picture = networks.picture(SEED) * np.float32(0.5) + np.float32(0.25)
    got = inputs.resized(picture, 64, 64, kernel, reach)
    wanted = torch.nn.functional.interpolate(torch.from_numpy(picture)[None], size=(64, 64), mode=mode, align_corners=False)
    assert np.abs(got - wanted.numpy()[0]).max() < 2e-6  # floats of both


def test_another_decoder_shifts_nothing():
    picture = networks.picture(SEED)
    feed = next(feed for name, _, feed in inputs.FEEDS if name == "input: another decoder")
    apart = (feed(picture, networks.given(picture)) - networks.given(picture)) * 255
    assert 0.2 < np.abs(apart).max() < 4
    assert abs(apart.mean()) < 0.02


# --- the matrix -----------------------------------------------------------------------------------------------------------------


def doctor_that_says(kind: str, **values: float):
    """A comparison that knows its answer."""
    cause = SimpleNamespace(kind=kind, values=values) if kind else None
    return lambda net, other, x, **options: SimpleNamespace(cause=cause, clean=not kind, verdict="")


def rows(tmp_path, mutation: str, compare) -> list[matrix.Row]:
    chosen = [cell for cell in matrix.cells(SEED, ["tiny"]) if cell.mutation.name == mutation and cell.backend != "onnx folded"]
    assert len(chosen) == 2
    return list(matrix.run(SEED, compare, tmp_path, chosen=chosen))


def test_a_right_name_with_a_right_number_is_correct(tmp_path):
    name = "batchnorm: epsilon 0.001 inside, layer 7"
    for epsilon, correct in ((0.001, True), (0.001005, True), (0.00102, False)):
        for row in rows(tmp_path, name, doctor_that_says("batchnorm.epsilon", epsilon=epsilon)):
            assert (row.correct, row.wrong, row.counts) == (correct, not correct, True)


def test_a_wrong_name_is_wrong_and_none_is_unknown(tmp_path):
    name = "maxpool: padded with zeros, layer 4"
    assert all(row.wrong and not row.correct for row in rows(tmp_path, name, doctor_that_says("maxpool.side")))
    assert not any(row.wrong or row.correct for row in rows(tmp_path, name, doctor_that_says("")))


def test_a_clean_port_and_another_decoder_have_no_fault(tmp_path):
    for name in ("clean", "input: another decoder"):
        assert all(row.correct for row in rows(tmp_path, name, doctor_that_says("")))
        assert all(row.wrong for row in rows(tmp_path, name, doctor_that_says("input.scale")))


def test_a_summary_counts_only_what_shows():
    def row(expected: tuple[str, ...], moved: float, correct: bool, wrong: bool = False) -> matrix.Row:
        return matrix.Row("tiny", "torch", "a", expected, moved, "", correct, wrong, {}, "")

    found = [row(("a",), 11, True), row(("a",), 11, False, wrong=True), row(("a",), 9, False), row((), 0, True)]
    counts = {"cells": 2, "named": 1, "share": 0.5, "wrong": 1, "clean": 1, "clean called clean": 1}
    assert matrix.summary(found) == counts


# --- a real network -------------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("backend", RUNS)
def test_a_right_port_of_yolo_fastest_agrees_in_every_value(models, backend):
    case = real_faults.real_case(models)
    share, where = farthest(case, case.graph, backend)
    assert share < SHARE, where


@pytest.mark.long
def test_the_known_faults_of_ports_show_in_yolo_fastest(models):
    case = real_faults.real_case(models)
    found = {cell.mutation.name: matrix.observable(cell) for cell in real_faults.real_cells(case, ("torch",))}
    assert found.pop("clean") == 0
    assert len(found) == 7
    assert min(found.values()) > matrix.VISIBLE
    assert [head.head.scale_x_y for head in case.net.heads] == [real_faults.SCALE] * 2
