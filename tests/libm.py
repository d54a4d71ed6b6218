"""Whether the exp, log and tanh in use give the bits of the recorder's libm: glibc 2.36 on a processor with FMA."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import hashlib
import struct

import pydarknetbn

# What the activations call. A power takes a second argument, of which the core uses these.
SINGLE = {"expf": (), "logf": (), "tanhf": (), "powf": (3.0, -1.5)}
DOUBLE = {"exp": (), "tanh": (), "pow": (3.0, -1.5, -3.0)}
PROBES = [i / 64 + 1e-3 for i in range(1, 1281)]
RECORDED = "b19c55675e542208"


def is_the_recorders() -> bool:
    """Then equal bits are demanded of every array, else the limits that the recorder gave."""
    return pydarknetbn.cpu_info().libm == "system" and systems_is_the_recorders()


@functools.cache
def systems_is_the_recorders() -> bool:
    """Whether this machine's libm is."""
    try:
        return probe() == RECORDED
    except (OSError, AttributeError, TypeError):  # no such library, function or loader here
        return False


def probe() -> str:
    """A digest of each function's results on the probes."""
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    digest = hashlib.sha256()
    for kind, code, functions in ((ctypes.c_float, "f", SINGLE), (ctypes.c_double, "d", DOUBLE)):
        for name, exponents in functions.items():
            function = getattr(library, name)
            function.restype, function.argtypes = kind, [kind] * (2 if exponents else 1)
            signs = (1,) if exponents or name == "logf" else (1, -1)
            arguments = [(sign * x, *more) for sign in signs for x in PROBES for more in ([(e,) for e in exponents] or [()])]
            results = [function(*argument) for argument in arguments]
            digest.update(struct.pack(f"<{len(results)}{code}", *results))
    return digest.hexdigest()[:16]
