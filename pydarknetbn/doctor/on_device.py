"""A network's outputs as a device computed them, held against the same layers on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from .._native import Array
from ..dialect import PROFILES
from ..network import Network
from .steps import Step

__all__ = ["DeviceOutputs"]


@dataclass(slots=True)
class DeviceOutputs:
    """The outputs of one forward on a device.

    Args:
        net: which is there.
        outputs: of its layers, by their numbers.
        apart: number of a layer whose output has other bits than the CPU's, on the device's inputs -> how far they are apart.
    """

    net: Network
    outputs: Mapping[int, Array]
    apart: dict[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, net: Network, x: Array) -> DeviceOutputs:
        """Those for a batch."""
        net.forward(x)
        return cls(net, {layer.index: layer.output.copy() for layer in net.layers if layer.native is not None})

    def instead_of(self, step: Step, ours: Array) -> Array:
        """The device's value of a step that gives a layer's output, else ours."""
        there = self.outputs.get(step.layer)
        if step.stage != "post" or there is None:
            return ours
        there = there.reshape(ours.shape)
        if not _same_bits(ours, there):
            with np.errstate(all="ignore"):
                self.apart[step.layer] = float(np.abs(there - ours).max())
        return there

    def notes(self) -> list[str]:
        """Sentences: where it was computed, whether bits are the CPU's, and the profile that a GPU build is compared with."""
        place = self.net.runner.device
        assert place is not None
        name = place.place.library.devices()[place.place.device].name
        told = f"our layers were computed on {self.net.device} ({name}), and the outputs of "
        if self.apart:
            first = self.net.layers[min(self.apart)]
            told += f"{len(self.apart)} of {len(self.outputs)} have other bits than profile {self.net.profile} on the CPU, first "
            told += f"layer {first.index} [{first.type}], by {self.apart[first.index]:.2g} at most"
        else:
            told += f"all {len(self.outputs)} have the bits of profile {self.net.profile} on the CPU"
        gpu = f"{self.net.dialect}-cuda"
        if gpu in PROFILES and self.net.profile == self.net.dialect_record.profile:
            return [told, f"a port that copies the GPU code of this cfg's fork is compared under --profile {gpu}"]
        return [told]


def _same_bits(a: Array, b: Array) -> bool:
    """NaN equals NaN, and the sign of zero counts."""
    same = (a == b) & (np.signbit(a) == np.signbit(b)) | np.isnan(a) & np.isnan(b)
    return bool(same.all())
