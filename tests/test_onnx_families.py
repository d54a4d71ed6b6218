"""The forks' own networks as ONNX, every layer compared, in little images and with weights from a seed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pydarknetbn as dn
from nets import FASTEST

onnx = pytest.importorskip("onnx", reason="onnx is not installed: pip install 'pydarknetbn[onnx]'")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'pydarknetbn[onnx]'")

from pydarknetbn.convert.onnx_export import export_onnx  # noqa: E402

CFGS, MODELS = "PYDARKNETBN_CFGS", "PYDARKNETBN_MODELS"
FAMILIES = {
    "pjreddie": ["yolov2", "yolov3", "yolov3-tiny", "yolov3-spp", "darknet19", "darknet53", "resnet50"],
    "alexeyab": [
        "yolov4", "yolov4-tiny", "yolov4-csp",
        "yolov4x-mish", "yolov7-tiny", "efficientnet_b0", "enet-coco", "csresnext50-panet-spp",
    ],
}  # fmt: skip

pytestmark = pytest.mark.long


def little(path: Path, dialect: str, side: int = 96) -> dn.Network:
    """The network on side x side pixels, with rolling arrays as after training."""
    text = re.sub(r"(?m)^(width|height)\s*=\s*\d+", rf"\1={side}", path.read_text(encoding="utf-8"), count=2)
    net, generator = dn.load(text.encode(), None, seed=3, dialect=dialect), np.random.default_rng(5)
    for layer in net.layers:
        for name, array in layer.params.items():
            if name == "rolling_variance":
                array[...] = generator.uniform(0.3, 2, array.shape)
            elif name == "scales":
                array[...] = generator.uniform(0.5, 1.5, array.shape)
            elif name in ("biases", "rolling_mean"):
                array[...] = generator.normal(0, 0.2, array.shape)
    return net


def assert_same_everywhere(net: dn.Network, target: Path) -> None:
    exported = export_onnx(net, target, fold=True, boxes="raw", batch="dynamic", dtype="float32", verify=True)
    onnx.checker.check_model(target, full_check=True)
    onnx.shape_inference.infer_shapes(onnx.load(target), check_type=True, strict_mode=True, data_prop=True)
    assert exported.verification is not None
    assert exported.verification.agrees, exported.verification.fault


@pytest.mark.parametrize(("dialect", "name"), [(dialect, name) for dialect, names in FAMILIES.items() for name in names])
def test_the_forks_networks_are_the_same_in_onnxruntime(dialect: str, name: str, tmp_path: Path) -> None:
    folder = os.environ.get(CFGS)
    if not folder:
        pytest.skip(f"{CFGS} does not name the folder of the forks' cfgs")
    assert_same_everywhere(little(Path(folder) / dialect / f"{name}.cfg", dialect), tmp_path / "out.onnx")


@pytest.mark.parametrize("name", [*FASTEST, "cifar_minin/cifar_minin", "yoloface-50k/yoloface-50k"])
def test_published_models_are_the_same_in_onnxruntime(name: str, tmp_path: Path) -> None:
    folder = os.environ.get(MODELS)
    if not folder:
        pytest.skip(f"{MODELS} does not name the folder of published models")
    assert_same_everywhere(dn.load(Path(folder) / f"{name}.cfg", Path(folder) / f"{name}.weights"), tmp_path / "out.onnx")


MEASURED = """
import pathlib, re, sys, time
import pydarknetbn as dn
net = dn.load(sys.argv[1], None)
net.save(sys.argv[2])
del net
net, start = dn.load(sys.argv[1], sys.argv[2]), time.perf_counter()
dn.convert.to_onnx(net, sys.argv[3], verify=False)
seconds, status = time.perf_counter() - start, pathlib.Path("/proc/self/status").read_text()
print(seconds, int(re.search(r"VmHWM:\\s+(\\d+)", status)[1]) * 1024)
"""


def test_a_large_network_takes_seconds_and_less_than_four_times_its_file(tmp_path: Path) -> None:
    folder = os.environ.get(CFGS)
    if not folder or not Path("/proc/self/status").exists():
        pytest.skip(f"needs Linux, and {CFGS} to name the folder of the forks' cfgs")
    weights = tmp_path / "yolov4.weights"
    cfg = (Path(folder) / "alexeyab" / "yolov4.cfg").resolve()
    command = [sys.executable, "-c", MEASURED, str(cfg), str(weights), str(tmp_path / "yolov4.onnx")]
    done = subprocess.run(command, cwd=Path(__file__).parent, check=True, capture_output=True, text=True)
    seconds, peak = (float(number) for number in done.stdout.split())
    assert seconds < 15
    assert peak < 4 * weights.stat().st_size


@pytest.mark.parametrize("name", ["yolo-fastest", "yolov4-tiny"])
def test_opencv_loads_and_runs_the_files(name: str, tmp_path: Path) -> None:
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed: pip install 'opencv-python-headless>=5'")
    folders = [os.environ.get(MODELS), os.environ.get(CFGS)]
    if not all(folders) or int(cv2.__version__.split(".")[0]) < 5:
        pytest.skip(f"needs {MODELS}, {CFGS} and OpenCV 5 or later, this one is {cv2.__version__}")
    if name == "yolo-fastest":
        net = dn.load(Path(str(folders[0])) / f"{name}.cfg", Path(str(folders[0])) / f"{name}.weights")
    else:
        net = little(Path(str(folders[1])) / "alexeyab" / f"{name}.cfg", "alexeyab")
    model = dn.convert.to_onnx(net, tmp_path / "out.onnx", batch=1, verify=False)
    x = np.random.default_rng(0).random((1, net.c, net.h, net.w), np.float32)
    reader = cv2.dnn.readNetFromONNX(str(tmp_path / "out.onnx"))
    reader.setInput(x)
    for got, want in zip(reader.forward([output.name for output in model.graph.output]), net.forward(x), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-4 * np.ptp(want))
