"""One step of `benchmarks.gpu`: what is measured on the device. The last line printed is the figures, in JSON."""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from .common import LeftOut
from .gpu_machine import SHAPES, Machine, machine

TINY_YOLO = Path(__file__).parent.parent / "cfg" / "tiny-yolo.cfg"
DTYPES = {"float32": 4, "float16": 2, "bfloat16": 2}
PROFILES = ("pjreddie-cuda", "alexeyab-cuda")
# Passes over an array of the batch's size: a forward reads x for its moments, and again for its output, which it writes; a backward
# reads x and delta for the sums, and again for the delta that it writes. An inference reads and writes.
PASSES = {"training": 8, "inference": 2}


# --- batch normalization ----------------------------------------------------------------------------------------------------------


def copy_rate(on: Machine) -> float:
    """Bytes a second, read and written, of a copy of an array larger than any cache."""
    from pydarknetbn.cuda import DeviceArray

    size = 1 << 16 if on.emulated else 1 << 30
    source, target = (DeviceArray(on.library, (size // 4,)) for _ in range(2))
    functions, ffi = on.library.functions, on.library.ffi
    pointers = [ffi.cast("void *", array.pointer) for array in (target, source)]
    ours = on.median_ms(lambda: functions.gpu_copy_array(*pointers, size, ffi.NULL))
    if not on.torch:
        return 2 * size / ours * 1e3
    taken = [on.torch.from_dlpack(array) for array in (target, source)]
    return 2 * size / min(ours, on.median_ms(lambda: taken[0].copy_(taken[1]))) * 1e3


def ours(on: Machine, x: Any, delta: Any, dtype: str) -> dict[str, Callable[[], object]]:
    """Our training and inference, into arrays that are there."""
    from pydarknetbn.cuda import BatchNorm

    shape = tuple(x.shape)
    layer = BatchNorm(shape[1], profile="torch", dtype=dtype, library=on.library)
    out, carried = (on.normal(shape, dtype, 9) for _ in range(2))

    def train() -> None:
        layer.forward(x, train=True, out=out)
        layer.backward(delta, out=carried)

    return {"training": train, "inference": lambda: layer.forward(x, train=False, out=out)}


def torchs(on: Machine, x: Any, delta: Any) -> dict[str, Callable[[], object]]:
    """PyTorch's, of the same arrays."""
    module = on.torch.nn.BatchNorm2d(x.shape[1], device="cuda")
    resting = on.torch.nn.BatchNorm2d(x.shape[1], device="cuda").eval()
    leaf = x.detach().requires_grad_()
    wanted = (leaf, module.weight, module.bias)

    def infer() -> object:
        with on.torch.inference_mode():
            return resting(x)

    return {"training": lambda: on.torch.autograd.grad(module(leaf), wanted, delta), "inference": infer}


def batchnorm(on: Machine) -> dict[str, Any]:
    """Times and rates of the fast kernels beside PyTorch's and a copy's, and the bits of the strict ones beside the CPU's."""
    rate, cases = copy_rate(on), []
    for dtype, size in DTYPES.items():
        if dtype == "bfloat16" and not on.torch:
            continue
        for shape in on.shapes:
            x, delta = on.normal(shape, dtype, 1), on.normal(shape, dtype, 2)
            others = torchs(on, x, delta) if on.torch else {}
            for name, call in ours(on, x, delta, dtype).items():
                ms = on.median_ms(call)
                moved = PASSES[name] * math.prod(shape) * size
                case = {"pass": name, "dtype": dtype, "shape": shape, "ms": ms, "bytes": moved}
                case["share_of_copy"] = moved / ms * 1e3 / rate
                case["torch_ms"] = on.median_ms(others[name]) if name in others else None
                cases.append(case)
                print(json.dumps(case), flush=True)
    return {"copy_bytes_per_second": rate, "cases": cases, "strict": [strict(on, profile) for profile in PROFILES]}


def strict(on: Machine, profile: str) -> dict[str, Any]:
    """Whether a training step has the CPU's bits, and how long it takes."""
    import pydarknetbn as dn
    from pydarknetbn.cuda import BatchNorm, DeviceArray

    shape = (2, 3, 24, 24) if on.emulated else (32, 64, 56, 56)
    x, delta = (np.random.default_rng(seed).normal(1, 2, shape).astype(np.float32) for seed in (1, 2))
    host = dn.BatchNorm(shape[1], profile=profile)
    layer = BatchNorm(shape[1], profile=profile, kernels="strict", library=on.library)
    x_there, delta_there = (DeviceArray.from_numpy(on.library, array) for array in (x, delta))
    equal = np.array_equal(layer.forward(x_there, train=True).numpy(), host.forward(x, train=True))
    equal &= np.array_equal(layer.backward(delta_there).numpy(), host.backward(delta))
    equal &= all(np.array_equal(array, getattr(host, name)) for name, array in layer.pull().items() if hasattr(host, name))
    outs = [DeviceArray(on.library, shape) for _ in range(2)]

    def step() -> None:
        layer.forward(x_there, train=True, out=outs[0])
        layer.backward(delta_there, out=outs[1])

    return {"profile": profile, "shape": shape, "equal": bool(equal), "ms": on.median_ms(step, rounds=5)}


# --- what a sanitizer looks at ------------------------------------------------------------------------------------------------


class Alone:
    """A rank of its own that gathers all the same."""

    rank, size, merges_alone = 0, 1, True

    def gathering(self, own: Any, rows: Any, /) -> Callable[[object], None]:
        """A copy."""
        library = own.library
        pointers = [library.ffi.cast("void *", array.pointer) for array in (rows, own)]
        return lambda _: library.check(library.functions.gpu_copy_array(*pointers, own.nbytes, library.ffi.NULL), "a copy")

    def tell(self, sentence: str, /) -> Sequence[str]:
        """Itself."""
        return [sentence]


def program(on: Machine) -> dict[str, Any]:
    """Every kernel of batch normalization once, on sizes that fill packs and blocks and on others; and a small network."""
    from pydarknetbn.cuda import BatchNorm, DeviceArray

    on = Machine(on.library, None, on.emulated)
    passes = 0
    kinds = [("strict", "alexeyab-cuda", "float32", None)]
    kinds += [("fast", "torch", dtype, comm) for dtype in ("float32", "float16") for comm in (None, Alone())]
    for kernels, profile, dtype, comm in kinds:
        for shape in ((2, 3, 24, 24), (40, 2, 32, 32), (3, 5, 7, 9), (6, 4)):
            layer = BatchNorm(shape[1], profile=profile, kernels=kernels, dtype=dtype, library=on.library)
            layer.sync(comm)
            x, delta = on.normal(shape, dtype, 1), on.normal(shape, dtype, 2)
            for each in (layer.forward(x, train=True), layer.backward(delta), layer.forward(x, train=False)):
                if not np.isfinite(DeviceArray.numpy(each).astype(np.float32)).all():
                    raise ArithmeticError(f"{layer!r} of {shape}: not all values are numbers")
            layer.update(learning_rate=0.1, momentum=0.9, batch=shape[0])
            passes += 3
    return {"passes": passes, "networks": 0 if on.emulated else small_network()}


def small_network() -> int:
    """How many networks ran on the device: one with most kinds of layers."""
    from .networks import image_for, seeded

    net = seeded(TINY_YOLO, 96)
    net.to("cuda")
    net.forward(image_for(net, batch=2))
    return 1


# --- networks and ranks ---------------------------------------------------------------------------------------------------------


def networks(on: Machine) -> dict[str, Any]:
    """Forwards of whole networks, exact and fast, beside the CPU's numbers."""
    from .networks import cfg_named, image_for, seeded

    cfgs = [(name, size, cfg_named(name)) for name, size in (("yolov3", 416), ("yolov4-tiny", 416))]
    found = [(name, size, path) for name, size, path in cfgs if path] or [("tiny-yolo", 416, TINY_YOLO)]
    return {"cases": [case for name, size, path in found for case in network_cases(on, name, seeded(path, size), image_for)]}


def network_cases(on: Machine, name: str, net: Any, image_for: Callable[[Any], Any]) -> Iterator[dict[str, Any]]:
    """One for each way to sum."""
    image = image_for(net)
    wanted = [np.array(output) for output in _outputs(net, image)]
    there = on.torch.from_numpy(image).cuda() if on.torch else image
    for how in ("exact", "fast"):
        case: dict[str, Any] = {"network": name, "math": how}
        try:
            net.to("cuda", math=how)
            got = _outputs(net, image)
            case["equal"] = all(np.array_equal(*pair) for pair in zip(got, wanted, strict=True))
            case["difference"] = max(float(np.abs(one - other).max()) for one, other in zip(got, wanted, strict=True))
            case["ms"] = Machine(on.library, None, False).median_ms(lambda: net.forward(image), rounds=7)
            case["device_ms"] = on.median_ms(lambda: net.forward_on_device(there), rounds=7)
        except Exception as reason:
            case["said"] = f"{type(reason).__name__}: {reason}"
        net.to("cpu")
        print(json.dumps(case), flush=True)
        yield case


def _outputs(net: Any, image: Any) -> list[Any]:
    given = net.forward(image)
    return [np.array(each) for each in (given if isinstance(given, list | tuple) else [given])]


def ranks(on: Machine) -> dict[str, Any]:
    """A training step over nccl beside PyTorch's SyncBatchNorm, one rank for each device."""
    if not on.torch or not on.torch.distributed.is_nccl_available():
        raise LeftOut("ranks need a GPU and a PyTorch with nccl")
    size = on.torch.cuda.device_count()
    with tempfile.TemporaryDirectory() as folder:
        arguments = (size, f"{folder}/store", f"{folder}/figures")
        on.torch.multiprocessing.spawn(rank_main, arguments, nprocs=size)
        return json.loads(Path(arguments[2]).read_text(encoding="utf-8"))


def rank_main(rank: int, size: int, store: str, target: str) -> None:
    """One rank."""
    import torch

    import pydarknetbn as dn

    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=size)
    on, shape = machine(emulated=False), SHAPES[1]
    x, delta = on.normal(shape, "float32", 10 + rank), on.normal(shape, "float32", 20 + rank)
    comm = dn.cuda.from_torch()
    layer = dn.cuda.BatchNorm(shape[1], profile="torch", device=rank)
    alone = SimpleNamespace(rank=0, size=1, merges_alone=True, gathering=comm.gathering, tell=comm.tell)
    layer.sync(comm if size > 1 else alone)
    module = torch.nn.SyncBatchNorm(shape[1], device="cuda")
    leaf = x.detach().requires_grad_()
    output = module(leaf)
    (gradient,) = torch.autograd.grad(output, (leaf,), delta)
    got, carried = torch.from_dlpack(layer.forward(x, train=True)), torch.from_dlpack(layer.backward(delta))
    apart = [float((one - other).abs().max()) for one, other in ((got, output.detach()), (carried, gradient))]
    wanted = (leaf, module.weight, module.bias)

    def step() -> None:
        layer.forward(x, train=True, out=got)
        layer.backward(delta, out=carried)

    ms = on.median_ms(step)
    torch_ms = on.median_ms(lambda: torch.autograd.grad(module(leaf), wanted, delta))
    if rank == 0:
        figures = {"ranks": size, "shape": shape, "ms": ms, "torch_ms": torch_ms, "output_apart": apart[0], "delta_apart": apart[1]}
        Path(target).write_text(json.dumps(figures), encoding="utf-8")
    torch.distributed.destroy_process_group()


STEPS = {"program": program, "batchnorm": batchnorm, "networks": networks, "ranks": ranks}


def main() -> None:
    """STEP, and --emulated."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_work", description=__doc__)
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("--emulated", action="store_true")
    options = parser.parse_args()
    try:
        figures = STEPS[options.step](machine(emulated=options.emulated))
    except LeftOut as reason:
        print(reason)
        sys.exit(LeftOut.STATUS)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
