"""What the forks' own programs make of a `.cfg`: which of them runs it, and where the others end."""

from ..cfg import Cfg
from ..dialect import PARSERS, Dialect
from .findings import Finding, Fork
from .forks import fork_of, forks_of
from .statements import RawOption, RawSection, raw_sections

__all__ = ["Finding", "Fork", "RawOption", "RawSection", "forks_of", "raw_sections", "refusals"]


def refusals(cfg: Cfg, dialect: Dialect) -> tuple[str, ...]:
    """What ends the program of a fork that refuses whatever it does not know, as sentences with file and line.

    Empty for the other forks, which go on with a default; what they take is told where it is read.
    """
    if PARSERS[dialect.name].unknown != "refused":
        return ()
    reasons = fork_of(cfg.name, cfg.text, dialect).reasons
    ends = [reason for reason in reasons if reason.severity == "error"]
    return tuple(f"{end.file}:{end.line}: {end.message}, which ends the program of {dialect.name}" for end in ends)
