"""A PyTorch module back to a network."""

from __future__ import annotations

from typing import Any, cast

from ..errors import DtypeError
from ..extras import import_extra
from ..network import Network
from .filling import CfgSource, HeaderNumbers
from .naming import Style
from .state import from_state_dict

__all__ = ["from_torch"]


def from_torch(
    source: Any,
    *,
    cfg: CfgSource | None = None,
    style: Style = "layers",
    header: HeaderNumbers | None = None,
    profile: str | None = None,
) -> Network:
    """A network from a module, such as `to_torch` makes, or another one whose parameters have the names of a style.

    Args:
        source: the module.
        cfg: the network's; None takes that of a module of `to_torch`.
        style: of the names.
        header: for `save`; None takes that of a module of `to_torch`, else version 0.2.5 and no image seen.
        profile: that computes; None takes the module's, else the dialect's.

    Raises:
        DtypeError: no module.
        MissingExtraError: torch is not installed.
        ValueError: no cfg.
        WeightsError: names or shapes are not the cfg's.
    """
    torch = import_extra("torch", "torch")
    if not isinstance(source, torch.nn.Module):
        raise DtypeError(f"expected a torch.nn.Module, got {type(source).__name__}; for a dict of tensors take from_state_dict")
    text = getattr(source, "cfg", None) if cfg is None else None
    own = isinstance(text, str)
    if cfg is None and not own:
        raise ValueError(f"a {type(source).__name__} holds no cfg; pass the network's with cfg=")
    return from_state_dict(
        source.state_dict(),
        cfg=text.encode() if isinstance(text, str) else cast(CfgSource, cfg),
        style=style,
        header=header or cast(HeaderNumbers, getattr(source, "header", (0, 2, 5, 0))),
        profile=profile or (source.profile if own else None),
        dialect=source.dialect if own else "auto",
    )
