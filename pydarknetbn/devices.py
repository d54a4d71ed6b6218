"""The methods of a `Network` that move it to a device; what computes there is imported with the first call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from .errors import DeviceError, StateError

if TYPE_CHECKING:
    from .cuda import DeviceArray
    from .network import Network

__all__ = ["check_device", "device_of", "forward_on_device", "to"]


def to(net: Network, device: str, *, math: Literal["exact", "fast"] = "exact", stream: object = None) -> Network:
    """Moves the inference of a network to a CUDA device, or back.

    `forward`, `detect` and what else runs the whole network then compute there, and give their results on the host as before:
    `layer.output` is a copy of what the device computed, so keep="heads" saves the copies of all other layers. Parameters stay on
    the host and are copied; one that may have changed since is copied again by the next forward, so what is written into
    `layer.weights` counts. While a view of an array is held, or a `clone(share=True)` of the network lives, each forward copies
    that array: whoever wants speed lets go of them.

    Training, `calibrate`, a clone, and single steps within layers, which `dump` and `compare` show, run on the CPU.

    Args:
        net: the network.
        device: "cpu", "cuda" (the first) or "cuda:N".
        math: *exact*: each sum in the order of the CPU, each operation rounded by itself, with the package's own exp, log and tanh:
            the bits of the network's profile on the CPU, on every device. *fast*: convolutions and connected layers by cuBLAS in
            float32, which sums in an order of its own: equal within rounding.
        stream: of the caller: PyTorch's, CuPy's, or an address; None: the default one.

    Returns:
        The network itself.

    Raises:
        DeviceError: no CUDA library, no such device, or no memory left on it; for *fast*, no cuBLAS. The network stays where it is.
        UnsupportedError: a layer that is not computed on a device.
    """
    if math not in ("exact", "fast"):
        raise ValueError(f"expected math to be 'exact' or 'fast', got {math!r}")
    number = _number(device)
    with net.turn():
        if number is None:
            net.runner.device = None
        else:
            from .cuda.placing import device_layers  # noqa: PLC0415 a network is mostly on the CPU

            name, before = net.origin.cfg.name, net.runner.device
            net.runner.device = device_layers(net.layers, net.kept, name, number, math == "fast", stream, before)
    return net


def device_of(net: Network) -> str:
    """Where inference runs: "cpu", or "cuda:0"."""
    return str(net.runner.device.place) if net.runner.device else "cpu"


def forward_on_device(net: Network, x: object) -> list[DeviceArray]:
    """A `forward` whose results stay on the device, and that does not wait for them.

    Args:
        net: a network on a device.
        x: as `forward` takes it: on the host, or an array on the same device, PyTorch's, CuPy's, JAX' …, which is not copied.

    Returns:
        New arrays of the outputs of the heads, without any the last layer's; `torch.from_dlpack(array)` copies nothing.
        No `layer.output` is made by it.

    Raises:
        StateError: the network is on the CPU.
        DeviceError, DtypeError, ShapeError: x is not as told.
    """
    with net.turn():
        there = net.runner.device
        if there is None:
            raise StateError(f"{net.origin.cfg.name}: is on the CPU; net.to('cuda') moves it to a device")
        return there.outputs(net.checked(x))


def check_device(device: str) -> None:
    """Raises a DeviceError where no network can be moved to it, before one is made."""
    number = _number(device)
    if number is not None:
        from .cuda.placing import library_for  # noqa: PLC0415

        library_for(number)


def _number(device: str) -> int | None:
    """Of a CUDA device; None: the CPU."""
    kind, colon, number = device.partition(":") if isinstance(device, str) else ("", "", "")
    if device == "cpu":
        return None
    if kind != "cuda" or (colon and not (number.isdecimal() and len(number) < 5)):
        raise DeviceError(f"expected device 'cpu', 'cuda' or 'cuda:N' with the number of a device, got {device!r}")
    return int(number or 0)
