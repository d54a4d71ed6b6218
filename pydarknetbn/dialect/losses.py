"""How each fork's losses compute; see `profiles.py` for the sources."""

from __future__ import annotations

from dataclasses import replace

from .rules import LossRule

__all__ = ["ALEXEYAB_LOSSES", "HANK_AI_LOSSES", "PJREDDIE_LOSSES"]

PJREDDIE_LOSSES = LossRule(
    functions="double",
    box_deltas="replaced",
    class_mark="first",
    spared="overlapping",
    non_numbers="kept",
    score_sums="batch",
    smooth_sign="away",
    aspect_guard=1e-6,
    normal_guard=1e-9,
    probability_guard=1e-15,
)

ALEXEYAB_LOSSES = replace(
    PJREDDIE_LOSSES,
    box_deltas="added",
    class_mark="own",
    spared="overlapping and sure",
    non_numbers="replaced",
    score_sums="image",
    smooth_sign="towards",
)

HANK_AI_LOSSES = replace(ALEXEYAB_LOSSES, functions="float")
