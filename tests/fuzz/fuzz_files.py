"""Feeds the readers of .cfg and .weights with mutated bytes; see README.md here.

The first two bytes say how many bytes of the rest are the cfg; what follows is the weights. An error of the package is a good end,
any other exception a finding.
"""

from __future__ import annotations

import contextlib
import sys

import atheris

with atheris.instrument_imports(include=["pydarknetbn"]):
    import pydarknetbn as dn
    from pydarknetbn import loading

loading.available_memory = lambda: 1 << 28  # a machine with 256 MiB to give


def one(data: bytes) -> None:
    """Loads, checks and lints one input."""
    size = int.from_bytes(data[:2], "little")
    cfg, weights = data[2 : 2 + size], data[2 + size :]
    net = None
    with contextlib.suppress(dn.DarknetError, MemoryError):
        net = dn.load(cfg, weights or None)
    if net is not None and weights and net.to_bytes() != weights:
        raise AssertionError("saved bytes are not those that were loaded")
    with contextlib.suppress(dn.DarknetError, MemoryError):
        report = dn.check(cfg, weights)
        if net is not None and weights and report.missing + report.left_over:
            raise AssertionError(f"load took what check refuses: {report.verdict}")
    with contextlib.suppress(dn.CfgError):
        dn.lint(cfg)
        dn.forks(cfg)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
