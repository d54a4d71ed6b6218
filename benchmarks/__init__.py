"""How fast the package is beside what would be used instead of it: `python -m benchmarks` in the source tree."""

import sys
from pathlib import Path

_ROOT = str(Path(__file__).parent.parent)
if _ROOT in sys.path:  # an installed package, with its compiled core, goes before the sources beside this folder
    sys.path.remove(_ROOT)
    sys.path.append(_ROOT)
