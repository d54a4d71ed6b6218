"""Batch normalization on a real GPU: its bits beside the CPU's and the emulation's, and what PyTorch gives on the same device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pydarknetbn as dn
from emulating import built_library
from pydarknetbn.cuda import BatchNorm, DeviceArray
from pydarknetbn.cuda.library import Library

pytestmark = pytest.mark.gpu

# Planes that fill packs of 16 bytes and that do not, many small ones, few large ones, single values.
SHAPES = [(8, 16, 56, 56), (16, 70, 28, 28), (5, 33, 13, 13), (3, 7, 19, 21), (2, 3, 416, 416), (64, 100), (9, 2, 1, 3)]
HALF = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


@pytest.fixture
def torch(gpu: Library) -> Any:
    found = pytest.importorskip("torch")
    if not found.cuda.is_available():
        pytest.skip("needs a PyTorch that has the GPU")
    found.backends.cudnn.allow_tf32 = found.backends.cuda.matmul.allow_tf32 = False
    return found


def numbers(shape: tuple[int, ...], seed: int, mean: float = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(mean, 2, shape).astype(np.float32)


def steps(layer: BatchNorm, x: np.ndarray, delta: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Everything that two training steps and an inference leave."""
    library = layer._library
    layer.push(scales=numbers((x.shape[1],), 1), biases=numbers((x.shape[1],), 2))
    on_device, delta_on_device = DeviceArray.from_numpy(library, x), DeviceArray.from_numpy(library, delta)
    for step in range(2):
        yield f"output {step}", layer.forward(on_device, train=True).numpy()
        yield f"delta {step}", layer.backward(delta_on_device).numpy()
    yield from layer.pull().items()
    yield "inference", layer.forward(on_device, train=False).numpy()


def same_bits(one: BatchNorm, other: BatchNorm, x: np.ndarray, delta: np.ndarray) -> None:
    for (name, got), (_, wanted) in zip(steps(one, x, delta), steps(other, x, delta), strict=True):
        np.testing.assert_array_equal(got, wanted, err_msg=name)


# --- bits ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["pjreddie-cuda", "alexeyab-cuda", "hank-ai-cuda"])
@pytest.mark.parametrize("shape", SHAPES)
def test_strict_kernels_have_the_bits_of_the_cpu(gpu: Library, profile: str, shape: tuple[int, ...]) -> None:
    ours, theirs = dn.BatchNorm(shape[1], profile=profile), BatchNorm(shape[1], profile=profile, kernels="strict", library=gpu)
    x, delta = numbers(shape, 3), numbers(shape, 4, mean=0)
    on_device = DeviceArray.from_numpy(gpu, x)
    np.testing.assert_array_equal(theirs.forward(on_device, train=True).numpy(), ours.forward(x, train=True))
    np.testing.assert_array_equal(theirs.backward(DeviceArray.from_numpy(gpu, delta)).numpy(), ours.backward(delta))
    for name, got in theirs.pull().items():
        if hasattr(ours, name):
            np.testing.assert_array_equal(got, getattr(ours, name), err_msg=name)
    np.testing.assert_array_equal(theirs.forward(on_device, train=False).numpy(), ours.forward(x, train=False))


@pytest.mark.parametrize("shape", [(4, 6, 28, 28), (3, 5, 13, 13), (40, 2, 32, 32), (30, 7)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_fast_kernels_have_the_bits_of_their_emulation(gpu: Library, shape: tuple[int, ...], dtype: str) -> None:
    """They, too, round each operation by itself, and merge in an order that is always the same."""
    x, delta = numbers(shape, 3).astype(dtype), numbers(shape, 4, mean=0).astype(dtype)
    real, emulated = (BatchNorm(shape[1], profile="torch", dtype=dtype, library=each) for each in (gpu, built_library()))
    same_bits(real, emulated, x, delta)


@pytest.mark.parametrize("shape", [(64, 64, 56, 56), (32, 512, 28, 28), (256, 4, 7, 7)])
def test_fast_kernels_give_the_same_bits_each_time(gpu: Library, shape: tuple[int, ...]) -> None:
    """A race between the threads of a block, or between the blocks of a channel, would not."""
    x, delta = DeviceArray.from_numpy(gpu, numbers(shape, 3)), DeviceArray.from_numpy(gpu, numbers(shape, 4))
    found = set()
    for _ in range(30):
        layer = BatchNorm(shape[1], profile="torch", library=gpu)
        layer.forward(x, train=True)
        layer.backward(delta)
        found.add(b"".join(layer.pull()[name].tobytes() for name in ("mean", "variance", "scale_updates", "variance_delta")))
    assert len(found) == 1


# --- beside PyTorch -----------------------------------------------------------------------------------------------------


def module_and_layer(torch: Any, gpu: Library, channels: int, dtype: str = "float32") -> tuple[Any, BatchNorm]:
    layer = BatchNorm(channels, profile="torch", dtype=dtype, library=gpu)
    layer.push(scales=numbers((channels,), 1), biases=numbers((channels,), 2))
    module = torch.nn.BatchNorm2d(channels, device="cuda")
    with torch.no_grad():
        module.weight.copy_(torch.from_numpy(numbers((channels,), 1)))
        module.bias.copy_(torch.from_numpy(numbers((channels,), 2)))
    return module, layer


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if len(shape) == 4])
def test_fast_kernels_train_as_pytorch_does(torch: Any, gpu: Library, shape: tuple[int, ...]) -> None:
    module, layer = module_and_layer(torch, gpu, shape[1])
    x = torch.from_numpy(numbers(shape, 3)).cuda().requires_grad_()
    gradient = torch.from_numpy(numbers(shape, 4, mean=0)).cuda()
    output = module(x)
    output.backward(gradient)
    got = torch.from_dlpack(layer.forward(x, train=True))
    carried = torch.from_dlpack(layer.backward(gradient))
    torch.testing.assert_close(got, output.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(carried, x.grad, rtol=1e-5, atol=1e-5)
    pulled = layer.pull()
    terms = float(np.sqrt(np.prod(shape) / shape[1]))  # rounding of a sum grows with the root of its terms
    for name, wanted in (("scale_updates", module.weight.grad), ("bias_updates", module.bias.grad)):
        np.testing.assert_allclose(pulled[name], wanted.cpu().numpy(), rtol=1e-5, atol=1e-5 * terms)
    for name, wanted in (("rolling_mean", module.running_mean), ("rolling_variance", module.running_var)):
        np.testing.assert_allclose(pulled[name], wanted.cpu().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("dtype", "unit"), HALF.items())
def test_half_types_round_what_comes_out_once(torch: Any, gpu: Library, dtype: str, unit: float) -> None:
    module, layer = module_and_layer(torch, gpu, 16, dtype)
    x = torch.from_numpy(numbers((8, 16, 28, 28), 3)).cuda().to(getattr(torch, dtype))
    got = torch.from_dlpack(layer.forward(x, train=True))
    assert got.dtype == x.dtype
    torch.testing.assert_close(got.float(), module(x.float()).detach(), rtol=1.01 * unit, atol=1e-5)


def test_packs_are_read_from_where_they_may_lie(torch: Any, gpu: Library) -> None:
    """A tensor that begins between two packs is read value by value."""
    shape = (4, 8, 16, 16)
    whole = torch.from_numpy(numbers((4 * 8 * 256 + 1,), 3)).cuda()
    shifted = whole[1:].view(shape)
    assert shifted.data_ptr() % 16
    layer = BatchNorm(8, profile="torch", library=gpu)
    got = torch.from_dlpack(layer.forward(shifted, train=True))
    wanted = torch.nn.functional.batch_norm(shifted, None, None, training=True)
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


def test_arrays_of_more_than_2_to_the_31_values(torch: Any, gpu: Library) -> None:
    shape = (2, 3, 20_000, 20_000)
    if torch.cuda.mem_get_info()[0] < 64 << 30:
        pytest.skip("needs 64 GiB on the device")
    x = torch.empty(shape, device="cuda").normal_(3, 2)
    layer = BatchNorm(3, profile="torch", library=gpu)
    output = torch.from_dlpack(layer.forward(x, train=True))
    np.testing.assert_allclose(layer.pull()["mean"], x.double().mean(dim=(0, 2, 3)).cpu().numpy(), rtol=1e-6)
    last = (x[1, 2, -1].double() - x[:, 2].double().mean()) / x[:, 2].double().std(correction=0)
    torch.testing.assert_close(output[1, 2, -1].double(), last, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("channels", [1, 65_535])
def test_any_number_of_channels(torch: Any, gpu: Library, channels: int) -> None:
    x = torch.from_numpy(numbers((6, channels, 4), 3)).cuda()
    got = torch.from_dlpack(BatchNorm(channels, profile="torch", library=gpu).forward(x, train=True))
    torch.testing.assert_close(got, torch.nn.functional.batch_norm(x, None, None, training=True), rtol=1e-4, atol=1e-4)


# --- memory and streams -------------------------------------------------------------------------------------------------


def test_tensors_come_and_go_without_a_copy(torch: Any, gpu: Library) -> None:
    x, out = torch.ones((2, 3, 4, 4), device="cuda"), torch.empty((2, 3, 4, 4), device="cuda")
    layer = BatchNorm(3, profile="torch", library=gpu)
    assert layer.forward(x, train=True, out=out) is out
    made = layer.forward(x, train=True)
    taken = torch.from_dlpack(made)
    assert (taken.data_ptr(), taken.device) == (made.pointer, x.device)
    np.testing.assert_array_equal(out.cpu().numpy(), made.numpy())


def test_work_waits_for_the_callers_stream_and_is_waited_for(torch: Any, gpu: Library) -> None:
    stream, layer = torch.cuda.Stream(), BatchNorm(64, profile="torch", library=gpu)
    x, out = torch.zeros((32, 64, 56, 56), device="cuda"), torch.zeros((32, 64, 56, 56), device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for _ in range(50):  # takes far longer than putting the layer's work on the stream
            x.add_(1)
        x[:16].mul_(2)
        layer.forward(x, train=True, out=out, stream=stream)
        total = out.abs().mean()
    stream.synchronize()
    assert float(total) == pytest.approx(1, abs=1e-5)  # 100 in one half of the batch, 50 in the other


def test_what_pytorch_still_computes_on_another_stream_is_waited_for(torch: Any, gpu: Library) -> None:
    layer, other, x = BatchNorm(4, profile="torch", library=gpu), torch.cuda.Stream(), torch.zeros((8, 4, 256, 256), device="cuda")
    torch.cuda.synchronize()
    for _ in range(50):
        x.add_(1)
    layer.forward(x, train=True, stream=other)
    np.testing.assert_array_equal(layer.pull(stream=other)["mean"], np.full(4, 50, np.float32))


# --- ranks --------------------------------------------------------------------------------------------------------------


def test_a_rank_of_nccl_computes_what_syncbatchnorm_does(torch: Any, gpu: Library, tmp_path: Any) -> None:
    if not torch.distributed.is_nccl_available():
        pytest.skip("needs a PyTorch with nccl")
    torch.cuda.set_device(0)
    torch.distributed.init_process_group("nccl", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        module, layer = module_and_layer(torch, gpu, 16)
        layer.sync(Alone(dn.cuda.from_torch()))
        x = torch.from_numpy(numbers((8, 16, 14, 14), 3)).cuda().requires_grad_()
        gradient = torch.from_numpy(numbers((8, 16, 14, 14), 4)).cuda()
        output = torch.nn.SyncBatchNorm.convert_sync_batchnorm(module)(x)
        output.backward(gradient)
        torch.testing.assert_close(torch.from_dlpack(layer.forward(x, train=True)), output.detach(), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(torch.from_dlpack(layer.backward(gradient)), x.grad, rtol=1e-5, atol=1e-5)
    finally:
        torch.distributed.destroy_process_group()


class Alone:
    """A single rank that gathers all the same, so that one device runs what several do."""

    merges_alone = True

    def __init__(self, comm: Any) -> None:
        self.comm, self.rank, self.size = comm, comm.rank, comm.size

    def __getattr__(self, name: str) -> Any:
        return getattr(self.comm, name)
