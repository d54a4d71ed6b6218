"""Batch normalization on CUDA devices, where `Network.to` moves whole networks. The library is optional, opened on the first use.

layer = dn.cuda.BatchNorm(64, profile="torch")
output = layer.forward(tensor, train=True)         tensor: PyTorch's, CuPy's or JAX' on the device, not copied
torch.from_dlpack(output)                          nor is what comes out
layer.sync(dn.cuda.from_torch())                   training takes the statistics of all ranks of torch.distributed, as SyncBN does
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from .arrays import DeviceArray
from .batchnorm import BatchNorm
from .library import Device, devices, open_library
from .ranks import DeviceComm, from_torch

__all__ = ["BatchNorm", "Device", "DeviceArray", "DeviceComm", "devices", "from_torch", "to_device"]


def to_device(array: NDArray[Any], device: int = 0) -> DeviceArray:
    """A copy on a device of an array of the host, float32, float16 or bfloat16 (ml_dtypes).

    Raises:
        DeviceError: no CUDA library or device, or no memory left on it.
    """
    return DeviceArray.from_numpy(open_library(), array, device)
