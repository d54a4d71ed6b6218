"""What [net] says about training: batch, learning rates, momentum, decay, Adam."""

from __future__ import annotations

from dataclasses import dataclass

from ..dialect import PARSERS, Dialect
from ..options import Section, close_match

__all__ = ["TrainSettings", "read_settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """What a step of training is. Of a network `net.settings`, which may be set: `net.settings = replace(net.settings, decay=0.0)`.

    Args:
        batch: rows of one step, as the cfg has them: batch times time_steps.
        subdivisions: minibatches that a step's rows are split into.
        learning_rate, momentum, decay: of the step.
        policy: how the learning rate goes on, see `rates`.
        burn_in: iterations over which it rises, as (iteration / burn_in)**power.
        power: of burn_in, poly and random.
        steps, scales: of steps: from each iteration on, the factor.
        step, scale: of step: the factor for each so many iterations; step: also the middle of sigmoid.
        gamma: of exp and sigmoid.
        max_batches: iterations of the whole training, 0 without an end.
        learning_rate_min, cycle, cycle_multiplier: of sgdr (learning_rate_min, sgdr_cycle, sgdr_mult).
        sequential_subdivisions, seq_scales: read, and used by no program that trains on the CPU.
        adam, beta1, beta2, epsilon: Adam instead of momentum (adam, B1, B2, eps), where the profile's program has it.
        warnings: sentences on what was read in another way than it is written.
    """

    batch: int
    subdivisions: int
    learning_rate: float
    momentum: float
    decay: float
    power: float
    learning_rate_min: float
    epsilon: float
    policy: str = "constant"
    burn_in: int = 0
    steps: tuple[int, ...] = ()
    scales: tuple[float, ...] = ()
    step: int = 1
    scale: float = 1.0
    gamma: float = 1.0
    max_batches: int = 0
    cycle: int = 1
    cycle_multiplier: int = 2
    sequential_subdivisions: int = 1
    seq_scales: tuple[float, ...] = ()
    adam: bool = False
    beta1: float = 0.9
    beta2: float = 0.999
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, least in (("batch", 1), ("subdivisions", 1), ("step", 1), ("cycle", 1), ("cycle_multiplier", 1), ("burn_in", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"expected {name} to be {least} or more, got {getattr(self, name)}")
        if len(self.steps) != len(self.scales):
            raise ValueError(f"expected one of scales for each of {len(self.steps)} steps, got {len(self.scales)}")


def read_settings(net: Section, dialect: Dialect) -> TrainSettings:
    """The settings of a cfg's first section.

    Raises:
        CfgError: a value that is none, or none of a training; it names file, line and option.

    Source: pjreddie/darknet src/parser.c:655 parse_net_options, AlexeyAB/darknet src/parser.c:1145.
    """
    given, warnings = dialect.training, _left_out(net, dialect)
    subdivisions = net.integer("subdivisions", 1, minimum=1)
    minibatch = max(1, net.integer("batch", 1, minimum=1) // subdivisions)
    max_batches = net.integer("max_batches", 0, minimum=0)
    policy = _policy(net, dialect, warnings)
    steps, scales = _steps(net, policy, warnings)
    if policy == "poly" and not max_batches:
        raise net.error(f"{net.name} has policy=poly, whose learning rate ends with max_batches=, and no max_batches=", "policy")
    cycle = net.integer("sgdr_cycle", max_batches, minimum=1) if policy == "sgdr" else 1
    if policy == "sgdr" and not cycle:
        raise net.error(f"{net.name} has policy=sgdr, and no sgdr_cycle= or max_batches= for its length", "policy")
    return TrainSettings(
        batch=minibatch * subdivisions * max(1, net.integer("time_steps", 1)),
        subdivisions=subdivisions,
        learning_rate=net.number("learning_rate", given.learning_rate),
        momentum=net.number("momentum", given.momentum),
        decay=net.number("decay", given.decay),
        power=net.number("power", given.power),
        learning_rate_min=net.number("learning_rate_min", given.learning_rate_min),
        epsilon=net.number("eps", given.adam_epsilon),
        policy=policy,
        burn_in=net.integer("burn_in", 0, minimum=0),
        steps=steps,
        scales=scales,
        step=net.integer("step", 1, minimum=1),
        scale=net.number("scale", 1.0),
        gamma=net.number("gamma", 1.0),
        max_batches=max_batches,
        cycle=cycle,
        cycle_multiplier=net.integer("sgdr_mult", 2, minimum=1) if policy == "sgdr" else 2,
        sequential_subdivisions=min(subdivisions, net.integer("sequential_subdivisions", subdivisions)),
        seq_scales=net.numbers("seq_scales", ()),
        adam=net.flag("adam"),
        beta1=net.number("B1", 0.9),
        beta2=net.number("B2", 0.999),
        warnings=tuple(warnings),
    )


def _left_out(net: Section, dialect: Dialect) -> list[str]:
    """Sentences on what the dialect's program does to weights in a training, and this package does not."""
    done = f"by which dialect {dialect.name} changes weights in training, which is not done here"
    asked = [key for key in sorted(dialect.training.left_out) if net.number(key, 0.0)]
    return [str(net.error(f"{net.name} has {key}=, {done}", key)) for key in asked]


def _policy(net: Section, dialect: Dialect, warnings: list[str]) -> str:
    """The policy; an unknown one is constant where the fork's program says so and goes on."""
    known = dialect.training.policies
    name = net.text("policy", known[0])
    if name in known:
        return name
    near = close_match(name, known)
    hint = f"did you mean {near}?" if near else f"it knows {', '.join(known)}"
    unknown = f"{net.name} has policy={name}, which dialect {dialect.name} does not know"
    if PARSERS[dialect.name].unknown == "refused":
        raise net.error(f"{unknown}; {hint}", "policy")
    warnings.append(str(net.error(f"{unknown} and takes for {known[0]}; {hint}", "policy")))
    return known[0]


def _steps(net: Section, policy: str, warnings: list[str]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """steps= and scales=, as many; where scales are missing, the forks read on behind the text or take 0."""
    if policy != "steps":
        return (), ()
    for key in ("steps", "scales"):
        if not net.has(key):
            raise net.error(f"{net.name} has policy=steps and no {key}=; give as many steps= as scales=", "policy")
    steps, scales = net.integers("steps", ()), net.numbers("scales", ())
    if len(scales) < len(steps):
        raise net.error(f"{net.name} has {len(steps)} steps= and {len(scales)} scales=; give a scale for each step", "scales")
    if len(scales) > len(steps):
        message = f"{net.name} has {len(scales)} scales= and {len(steps)} steps=; those left over have no effect"
        warnings.append(str(net.error(message, "scales")))
    return steps, scales[: len(steps)]
