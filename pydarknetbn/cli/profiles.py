"""`pydarknetbn profiles`: who computes how, and how that is known."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ..dialect import BatchNormRule, Profile
from ..dialect import profiles as all_profiles
from . import common

__all__ = ["profiles"]


def profiles(json: common.JsonOption = False, quiet: common.QuietOption = False) -> None:  # noqa: ARG001
    """Show the profiles: epsilons, rolling factors, variances and the evidence for them."""
    if json:
        common.print_json([_document(profile) for profile in all_profiles()])
        return
    made = common.table("profile", "evidence", "inference", "backward", "rolling", "var.", "in", gap=1)
    for profile in all_profiles():
        for name, evidence, rule in _rows(profile):
            backward = dict.fromkeys(map(str, (rule.direct_term, rule.statistic_terms)))
            rolling = f"{rule.rolling_keep:g}/{rule.rolling_add:g}"
            cells = [name, evidence, str(rule.forward), ", ".join(backward), rolling, rule.normalize_variance]
            made.add_row(*cells, rule.intermediate)
    common.console().print(made)


def _rows(profile: Profile) -> Iterator[tuple[str, str, BatchNormRule]]:
    """A profile's rule after a convolution, and those after other layers that compute otherwise."""
    main = profile.rule("convolutional")
    yield profile.name, profile.evidence, main
    for host, rule in profile.batchnorm.items():
        if dataclasses.replace(rule, fold=main.fold, fold_root=main.fold_root, fold_factor=main.fold_factor) != main:
            yield f"  {host}", "", rule


def _document(profile: Profile) -> dict[str, object]:
    return {
        "name": profile.name,
        "evidence": profile.evidence,
        "batchnorm": {host: dataclasses.asdict(rule) for host, rule in profile.batchnorm.items()},
        "layers": dataclasses.asdict(profile.layers),
        "sources": dict(profile.sources),
    }
