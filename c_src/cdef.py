"""Writes the C source of the extension module: cuts the part of the header that cffi reads out of it."""

import re
import sys
from pathlib import Path

from cffi import FFI


def marked(path: Path) -> str:
    """What stands between the marks, an included header's marked part in place of its line."""
    text = path.read_text(encoding="utf-8").split("/* cdef begin */")[1].split("/* cdef end */")[0]
    return re.sub(r'#include "(.+)"', lambda found: marked(path.parent / found[1]), text)


# What Python gives a statistics_exchange; the core calls it as any other function.
CALLBACK = 'extern "Python" status exchange_statistics(void *, exchanged, double *, size_t);'

header, target = (Path(argument) for argument in sys.argv[1:])
ffi = FFI()
ffi.cdef(marked(header) + CALLBACK)
ffi.set_source("pydarknetbn._core", '#include "darknetbn.h"')
ffi.emit_c_code(str(target))
