"""What numbers of a network mean, as text beside them: who computes so, by which formula, of which files and input."""

from __future__ import annotations

import hashlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ..dialect import BatchNormRule, Profile, profile_named
from ..network import Network
from .given import Given, sha256

__all__ = ["about", "formula_of", "package_version"]

_MINIBATCH = "in training v and the mean are those of one minibatch alone, batch / subdivisions images of [net]"


def about(net: Network, given: Given) -> dict[str, str]:
    """Profile, dialect, cfg, input and formula of a network's numbers."""
    profile = profile_named(net.profile)
    return {
        "package": f"pydarknetbn {package_version()}",
        "cfg": Path(net.origin.cfg.name).name,
        "cfg_sha256": hashlib.sha256(net.origin.cfg.text.encode()).hexdigest(),
        "dialect": net.dialect,
        "profile": profile.name,
        "evidence": profile.evidence,
        "formula": formula_of(profile),
        "input": given.words,
        "resize": given.resize or "none",
        "input_sha256": sha256(given.array),
    }


def formula_of(profile: Profile) -> str:
    """The batch normalization that a profile's numbers follow, with where it stands in the sources."""
    hosts = {"convolutional": "after [convolutional]", "connected": "after [connected]", "batchnorm": "as [batchnorm]"}
    told: dict[str, list[str]] = {}
    for host, words in hosts.items():
        told.setdefault(_inference(profile.batchnorm[host]), []).append(words)  # type: ignore[index]
    source = profile.sources.get("forward", "")
    where = f" ({source})" if source else ""
    rules = "; ".join(f"{formula}, {' and '.join(words)}" for formula, words in told.items())
    return f"{profile.name}{where}: {rules}; sums has no biases in it; post = activation(normal); {_MINIBATCH}"


def _inference(rule: BatchNormRule) -> str:
    root = f"normal = (sums - rolling_mean) / ({rule.forward}) * scales + biases"
    return f"{root} with v = rolling_variance, root and quotient in {rule.intermediate}, the rest in float"


def package_version() -> str:
    """Of this package; "0" where it is not installed."""
    try:
        return version("pydarknetbn")
    except PackageNotFoundError:
        return "0"
