"""How fast the package is beside what would be used instead of it: `python -m benchmarks` in the source tree."""
