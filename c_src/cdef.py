"""Writes the C source of the extension module: cuts the part of the header that cffi reads out of it."""

import sys
from pathlib import Path

from cffi import FFI

header, target = (Path(argument) for argument in sys.argv[1:])
ffi = FFI()
ffi.cdef(header.read_text(encoding="utf-8").split("/* cdef begin */")[1].split("/* cdef end */")[0])
ffi.set_source("pydarknetbn._core", '#include "darknetbn.h"')
ffi.emit_c_code(str(target))
