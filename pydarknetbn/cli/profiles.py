"""`pydarknetbn profiles`: who computes how, and how that is known."""

from __future__ import annotations

import dataclasses

from ..dialect import EpsilonRule, Profile
from ..dialect import profiles as all_profiles
from . import common

__all__ = ["profiles"]


def profiles(json: common.JsonOption = False, quiet: common.QuietOption = False) -> None:  # noqa: ARG001
    """Show the profiles: epsilons, rolling factors, variances and the evidence for them."""
    if json:
        common.print_json([_document(profile) for profile in all_profiles()])
        return
    made = common.table("profile", "evidence", "after", "forward", "backward", "rolling", "variance", "in")
    for profile in all_profiles():
        for host, rule in profile.batchnorm.items():
            first = host == "batchnorm"
            made.add_row(
                profile.name if first else "",
                profile.evidence if first else "",
                "itself" if first else host,
                describe(rule.forward),
                f"{describe(rule.direct_term)}, {describe(rule.statistic_terms)}",
                f"{rule.rolling_keep:g} / {rule.rolling_add:g}",
                rule.normalize_variance,
                rule.intermediate,
            )
    common.console().print(made)


def describe(epsilon: EpsilonRule) -> str:
    """The root with its epsilon: sqrt(v + 1e-05) or sqrt(v) + 1e-06."""
    return f"sqrt(v + {epsilon.value:g})" if epsilon.side == "inside" else f"sqrt(v) + {epsilon.value:g}"


def _document(profile: Profile) -> dict[str, object]:
    return {
        "name": profile.name,
        "evidence": profile.evidence,
        "batchnorm": {host: dataclasses.asdict(rule) for host, rule in profile.batchnorm.items()},
        "layers": dataclasses.asdict(profile.layers),
        "sources": dict(profile.sources),
    }
