"""From a `.cfg` and a `.weights` to a network, and the decision what their bytes mean."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from ._native import array_limit, available_memory
from .building import Built, Origin, build_layers, initialize
from .cfg import Cfg, read_cfg
from .devices import check_device
from .dialect import AUTOMATIC, DIALECTS, Dialect, Profile, dialect_named, profile_named
from .errors import CfgError, WeightsError
from .network import Network
from .programs import refusals
from .variances import warnings_of
from .weights import Header, Source, entries, open_weights, read_arrays, read_header

__all__ = ["CfgSource", "Decision", "WeightsSource", "decide", "load", "load_names", "load_structure", "room_for"]

_LEAST_ROOM = 1 << 29

CfgSource = str | os.PathLike[str] | bytes | BinaryIO
WeightsSource = str | os.PathLike[str] | bytes | BinaryIO


class Decision(NamedTuple):
    """What the bytes mean, the cfg read so, and why."""

    dialect: Dialect
    cfg: Cfg
    why: str


def load(
    cfg: CfgSource,
    weights: WeightsSource | None = None,
    *,
    dialect: str = "auto",
    profile: str | None = None,
    upto: int | None = None,
    seed: int | None = None,
    seen_bytes: int | None = None,
    strict: bool = False,
    device: str = "cpu",
) -> Network:
    """Reads a network.

    Args:
        cfg: path, text as bytes, or binary file.
        weights: path, bytes or binary file; None gives the fork's initial values.
        dialect: what the bytes mean; "auto" decides, and `Network.why` says how.
        profile: how floats are computed; None takes the dialect's own.
        upto: the file holds the layers below this number; the others keep their initial values.
        seed: of the initial values and of the numbers that training draws, 0 where None.
        seen_bytes: 4 or 8, the size of the header's counter, for files whose version lies about it.
        strict: raise what would be a warning; with dialect "hank-ai" so whatever ends that fork's program, such as an option that
            it does not read.
        device: where its inference runs: "cpu", or "cuda" as `Network.to` has it.

    Returns:
        The network, whole: where anything is wrong, an error is raised and nothing is kept.

    Raises:
        CfgError, WeightsError: naming file, place, expected and found.
        UnsupportedError: a section or option that this package does not compute.
        ValueError: an argument that is none of those told.
    """
    _check_arguments(device, upto, seen_bytes)
    text = cfg.read() if hasattr(cfg, "read") else cfg
    source = None if weights is None else open_weights(weights)
    try:
        decision, chosen, built, names = _structure(cfg, text, source, dialect, profile)
        _raise_if_strict(built.warnings, strict, CfgError)
        _check_upto(upto, built)
        if source is None or upto is not None or not all(layer.file.loads_all for layer in built.layers):
            initialize(built.layers, decision.dialect, seed or 0)
        header, used = _fill(built, source, decision, upto, seen_bytes)
    finally:
        if source is not None:
            source.stream.close()
    variances = tuple(warnings_of(built.layers, source.name)) if source else ()
    _raise_if_strict(variances, strict, WeightsError)
    origin = Origin(decision.cfg, source.name if source else "", used, _why(decision, profile), built.warnings + variances)
    net = Network(built, dialect=decision.dialect, profile=chosen, header=header, origin=origin, names=names)
    net.generator = np.random.default_rng([seed or 0, 1])  # other numbers than those of the initial weights
    return net.to(device)


def load_structure(cfg: CfgSource, *, dialect: str = "auto", profile: str | None = None) -> Network:
    """What `load` makes of a cfg alone, but for the initial values, which take longer than all the rest: parameters are 0."""
    text = cfg.read() if hasattr(cfg, "read") else cfg
    decision, chosen, built, names = _structure(cfg, text, None, dialect, profile)
    origin = Origin(decision.cfg, "", 0, _why(decision, profile), built.warnings)
    header = Header(*decision.dialect.version, seen=0)
    return Network(built, dialect=decision.dialect, profile=chosen, header=header, origin=origin, names=names)


def _structure(
    cfg: CfgSource, text: str | os.PathLike[str] | bytes, source: Source | None, dialect: str, profile: str | None
) -> tuple[Decision, Profile, Built, tuple[str, ...]]:
    with room_for(source):
        decision = decide(text, source, dialect)
        chosen = profile_named(profile or decision.dialect.profile)
        built = build_layers(decision.cfg, decision.dialect, chosen)
    names, told = _names_beside(cfg)
    built = built._replace(warnings=_joined(built.warnings + told, refusals(decision.cfg, decision.dialect)))
    return decision, chosen, built, names or _names_of_tree(built)


def _why(decision: Decision, profile: str | None) -> tuple[str, str]:
    name = profile or decision.dialect.profile
    return decision.why, f"profile {name}: " + ("asked for" if profile else f"computes for dialect {decision.dialect.name}")


def _check_arguments(device: str, upto: int | None, seen_bytes: int | None) -> None:
    check_device(device)
    if upto is not None and upto < 0:
        raise ValueError(f"expected upto to be a layer number of 0 or more, got {upto}")
    if seen_bytes not in (None, 4, 8):
        raise ValueError(f"expected seen_bytes to be 4 or 8, got {seen_bytes}")


def _check_upto(upto: int | None, built: Built) -> None:
    if upto is not None and upto > len(built.layers):
        raise ValueError(f"expected upto to be at most the number of layers, {len(built.layers)}, got {upto}")


def _joined(warnings: tuple[str, ...], ends: tuple[str, ...]) -> tuple[str, ...]:
    """All of both; of a line that is warned of already, nothing more."""
    return warnings + tuple(end for end in ends if not any(warning.startswith(end.split(": ")[0] + ": ") for warning in warnings))


def _raise_if_strict(warnings: tuple[str, ...], strict: bool, kind: type[CfgError | WeightsError]) -> None:
    if strict and warnings:
        more = f" (and {len(warnings) - 1} more)" if len(warnings) > 1 else ""
        raise kind(warnings[0] + more)


def _fill(built: Built, source: Source | None, decision: Decision, upto: int | None, seen_bytes: int | None) -> tuple[Header, int]:
    if source is None:
        return Header(*decision.dialect.version, seen=0), 0
    header = read_header(source, decision.dialect, seen_bytes)
    return header, read_arrays(source, header, built.layers, decision.cfg.name, upto)


# --- what the bytes mean --------------------------------------------------------------------------------------------------------


def decide(cfg: str | os.PathLike[str] | bytes, source: Source | None, dialect: str) -> Decision:
    """The dialect of that name, or with "auto" the one that the files show.

    Raises:
        CfgError: the cfg cannot be read in it.
        WeightsError: the weights are none.
        ValueError: there is no such dialect.
    """
    return _decide(cfg, source) if dialect == "auto" else _chosen(cfg, dialect)


@contextmanager
def room_for(source: Source | None) -> Iterator[None]:
    """In the block, layers take no more memory than the weights' file or else the machine has room for.

    A cfg of a few bytes can ask for any memory; real ones take a little more than their file, for what is not stored in it.

    Raises:
        WeightsError: they take more; it names the line and the file.
        MemoryError: the same without weights.
    """
    room = available_memory() if source is None else max(_LEAST_ROOM, 4 * source.nbytes)
    try:
        with array_limit(room):
            yield
    except MemoryError as reason:
        if source is None:
            raise
        held = f"{source.name} holds {source.nbytes:,} bytes; it belongs to another cfg"
        raise WeightsError(f"{reason}, and {held}") from None


def _chosen(cfg: str | os.PathLike[str] | bytes, name: str) -> Decision:
    return Decision(dialect_named(name), read_cfg(cfg, dialect=name), f"dialect {name}: asked for")


def _decide(cfg: str | os.PathLike[str] | bytes, source: Source | None) -> Decision:
    """The first rule that decides: what only one family of forks knows, the byte count, the header's version, the default."""
    readings, refusals = _readings(cfg)
    if len(readings) == 1:
        ((name, read),) = readings.items()
        (refusal,) = refusals.values()
        return Decision(DIALECTS[name], read, f"dialect {name}: no other reads this cfg ({refusal})")
    marks = {name: _marks(read, DIALECTS[name]) for name, read in readings.items()}
    own = [name for name in readings if marks[name]]
    if len(own) == 1:
        name = own[0]
        return Decision(DIALECTS[name], readings[name], f"dialect {name}: only its forks know {marks[name][0]}")
    return _decide_by_weights(readings, source)


def _readings(cfg: str | os.PathLike[str] | bytes) -> tuple[dict[str, Cfg], dict[str, CfgError]]:
    readings: dict[str, Cfg] = {}
    refusals: dict[str, CfgError] = {}
    for name in AUTOMATIC:
        try:
            readings[name] = read_cfg(cfg, dialect=name)
        except CfgError as refusal:
            refusals[name] = refusal
    if not readings:
        raise refusals[AUTOMATIC[0]]
    return readings, refusals


def _marks(cfg: Cfg, dialect: Dialect) -> list[str]:
    """What in a cfg only this dialect's forks know."""
    elsewhere = frozenset().union(*(DIALECTS[name].activations for name in AUTOMATIC if name != dialect.name))
    found = []
    for section in cfg.sections:
        for option in section.options:
            place = f"on line {option.line}"
            if (section.type, option.key) in dialect.own_keys:
                found.append(f"{option.key}= of {section.name} {place}")
            elif option.key == "activation" and option.value in dialect.activations - elsewhere:
                found.append(f"activation={option.value} {place}")
    return found


def _decide_by_weights(readings: Mapping[str, Cfg], source: Source | None) -> Decision:
    default = AUTOMATIC[0]
    if source is None:
        why = f"dialect {default}: the default, since cfg and weights leave it open"
        return Decision(DIALECTS[default], readings[default], why)
    headers = {name: _peek(source, DIALECTS[name]) for name in readings}
    fitting = [name for name in readings if _floats(readings[name], DIALECTS[name]) * 4 + headers[name].nbytes == source.nbytes]
    if len(fitting) == 1 and len(readings) > 1:
        name = fitting[0]
        return Decision(DIALECTS[name], readings[name], f"dialect {name}: only its layout fills the file's {source.nbytes:,} bytes")
    for name in readings:
        version = headers[name]
        if {(version.major, version.minor, revision) for revision in (version.revision, None)} & set(DIALECTS[name].versions):
            return Decision(DIALECTS[name], readings[name], f"dialect {name}: the weights are of version {version.version}")
    why = f"dialect {default}: the default, since neither cfg nor weights of version {headers[default].version} decide"
    return Decision(DIALECTS[default], readings[default], why)


def _peek(source: Source, dialect: Dialect) -> Header:
    header = read_header(source, dialect, None)
    source.stream.seek(0)
    return header


def _floats(cfg: Cfg, dialect: Dialect) -> int:
    layers = build_layers(cfg, dialect, _profile_of(dialect)).layers
    return sum(entry.array.size for entry in entries(layers))


def _profile_of(dialect: Dialect) -> Profile:
    return profile_named(dialect.profile)


# --- names ----------------------------------------------------------------------------------------------------------------------


def load_names(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """The names of classes in a text file, one a line.

    Raises:
        WeightsError: it cannot be read as text.
    """
    try:
        return tuple(line.strip() for line in Path(path).read_text(encoding="utf-8-sig").splitlines() if line.strip())
    except (OSError, UnicodeDecodeError) as reason:
        raise WeightsError(f"{os.fspath(path)}: cannot be read as class names, one a line: {reason}") from reason


def _names_of_tree(built: Built) -> tuple[str, ...]:
    return next((layer.head.tree.names for layer in built.layers if layer.head and layer.head.tree), ())


def _names_beside(cfg: CfgSource) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Those in a file of the cfg's stem and `.names` beside it, and a warning where that file is no text."""
    path = Path(cfg).with_suffix(".names") if isinstance(cfg, str | os.PathLike) else None
    if path is None or not path.is_file():
        return (), ()
    try:
        return load_names(path), ()
    except WeightsError as reason:
        return (), (str(reason),)
