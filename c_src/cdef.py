"""Writes what cffi makes of a header: the C source of the extension module, or a Python module that opens a library later.

python cdef.py HEADER TARGET.c        for pydarknetbn._core, which the core is linked into
python cdef.py HEADER TARGET.py       for pydarknetbn._cuda_abi, whose library is opened where it is asked for
"""

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
if target.suffix == ".py":
    ffi.cdef(marked(header))
    ffi.set_source(f"pydarknetbn.{target.stem}", None)
    ffi.emit_python_code(str(target))
else:
    ffi.cdef(marked(header) + CALLBACK)
    ffi.set_source("pydarknetbn._core", f'#include "{header.name}"')
    ffi.emit_c_code(str(target))
