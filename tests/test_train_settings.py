"""What [net] says about training: values, defaults of the dialects, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

import pydarknetbn as dn
from nets import cfg_of


def settings_of(net: str, dialect: str = "alexeyab") -> dn.TrainSettings:
    return dn.load(cfg_of("conn output=1", net=net), dialect=dialect).settings


def refusal(net: str, dialect: str = "alexeyab") -> str:
    network = dn.load(cfg_of("conn output=1", net=net), dialect=dialect)  # for inference the values mean nothing
    with pytest.raises(dn.CfgError) as caught:
        _ = network.settings
    return str(caught.value)


@pytest.mark.parametrize("dialect", ["pjreddie", "alexeyab", "hank-ai"])
def test_without_options_the_forks_defaults_count(dialect: str) -> None:
    got = settings_of("", dialect)
    assert (got.batch, got.subdivisions, got.learning_rate, got.momentum, got.decay) == (1, 1, 0.001, 0.9, 0.0001)
    assert (got.policy, got.power, got.burn_in, got.max_batches, got.adam) == ("constant", 4, 0, 0, False)
    assert (got.beta1, got.beta2, got.epsilon) == (0.9, 0.999, 1e-7 if dialect == "pjreddie" else 1e-6)


def test_every_option_is_read() -> None:
    got = settings_of(
        "batch=64 subdivisions=16 time_steps=3 learning_rate=.01 momentum=.8 decay=.002 policy=steps steps=10,20 scales=.1,.5 "
        "burn_in=7 power=2 max_batches=99 adam=1 B1=.5 B2=.6 eps=.1 seq_scales=1,2"
    )
    want = dn.TrainSettings(
        batch=192,
        subdivisions=16,
        learning_rate=0.01,
        momentum=0.8,
        decay=0.002,
        policy="steps",
        steps=(10, 20),
        scales=(0.1, 0.5),
        burn_in=7,
        power=2.0,
        max_batches=99,
        adam=True,
        beta1=0.5,
        beta2=0.6,
        epsilon=0.1,
        learning_rate_min=0.00001,
        sequential_subdivisions=16,
        seq_scales=(1.0, 2.0),
    )
    assert got == want
    cosine = settings_of("policy=sgdr max_batches=500 sgdr_mult=3 learning_rate_min=.002")
    assert (cosine.policy, cosine.cycle, cosine.cycle_multiplier, cosine.learning_rate_min) == ("sgdr", 500, 3, 0.002)
    assert settings_of("policy=sgdr sgdr_cycle=40").cycle == 40


def test_a_batch_that_its_subdivisions_do_not_divide_is_rounded_down_as_the_forks_do() -> None:
    assert settings_of("batch=10 subdivisions=4").batch == 8
    assert settings_of("batch=1 subdivisions=4").batch == 4


def test_an_unknown_policy_is_constant_and_said() -> None:
    got = settings_of("policy=stepps")
    assert got.policy == "constant"
    assert got.warnings == (
        "<bytes>:5: [net] has policy=stepps, which dialect alexeyab does not know and takes for constant; did you mean steps?",
    )
    assert (
        "policy=sgdr, which dialect pjreddie does not know and takes for constant"
        in settings_of("policy=sgdr", "pjreddie").warnings[0]
    )
    assert "dialect hank-ai does not know; did you mean steps?" in refusal("policy=stepps", "hank-ai")
    net = dn.load(cfg_of("conn output=1", "softmax", net="policy=stepps"), profile="textbook")
    with pytest.warns(dn.DarknetWarning, match="policy=stepps"):
        net.fit([])


def test_what_a_program_does_to_weights_and_is_not_done_here_is_said() -> None:
    (told,) = settings_of("ema_alpha=.9998").warnings
    assert told == "<bytes>:5: [net] has ema_alpha=, by which dialect alexeyab changes weights in training, which is not done here"
    assert settings_of("weights_reject_freq=0").warnings == ()


@pytest.mark.parametrize(
    ("net", "message"),
    [
        ("learning_rate=fast", "<bytes>:5: [net] has learning_rate='fast', expected a number"),
        ("subdivisions=0", "<bytes>:5: [net] has subdivisions='0', expected 1 or more"),
        ("batch=-1", "<bytes>:5: [net] has batch='-1', expected 1 or more"),
        ("policy=steps scales=.1", "<bytes>:5: [net] has policy=steps and no steps=; give as many steps= as scales="),
        ("policy=steps steps=1", "<bytes>:5: [net] has policy=steps and no scales=; give as many steps= as scales="),
        ("policy=steps steps=1,2 scales=.1", "<bytes>:7: [net] has 2 steps= and 1 scales=; give a scale for each step"),
        ("policy=step step=0", "<bytes>:6: [net] has step='0', expected 1 or more"),
        ("policy=poly", "<bytes>:5: [net] has policy=poly, whose learning rate ends with max_batches=, and no max_batches="),
        ("policy=sgdr", "<bytes>:5: [net] has policy=sgdr, and no sgdr_cycle= or max_batches= for its length"),
    ],
)
def test_what_is_no_training_is_refused_with_file_and_line(net: str, message: str) -> None:
    assert refusal(net) == message


def test_scales_without_a_step_are_left_out_and_said() -> None:
    got = settings_of("policy=steps steps=5 scales=.1,.2")
    assert got.scales == (0.1,)
    assert got.warnings == ("<bytes>:7: [net] has 2 scales= and 1 steps=; those left over have no effect",)


def test_cosines_that_are_short_or_grow_fast_end_at_any_iteration() -> None:
    """The last of the equal cycles ends with the least rate; others grow beyond what a counter holds."""
    net = dn.load(cfg_of("conn output=1", net="policy=sgdr sgdr_cycle=3 sgdr_mult=1 learning_rate=.5 learning_rate_min=.125"))
    for images, rate in ((0, 0.5), (3, 0.125), (3 * 2**60, 0.125), (3 * 2**60 + 1, 0.40625)):
        net.seen = images
        assert net.learning_rate == pytest.approx(rate, rel=1e-6)
    net.settings = replace(net.settings, cycle_multiplier=2**31 - 1)
    net.seen = 2**63
    assert net.learning_rate == pytest.approx(0.21875, rel=1e-6)  # two thirds of the third, 3 * (2**31 - 1)**2 long


def test_settings_may_be_set_and_are_checked() -> None:
    net = dn.load(cfg_of("conn output=1"))
    net.settings = replace(net.settings, learning_rate=0.5, burn_in=4, power=1.0)
    net.seen = 3
    assert net.learning_rate == 0.375
    net.seen = 4
    assert net.learning_rate == 0.5
    with pytest.raises(ValueError, match="expected cycle to be 1 or more, got 0"):
        replace(net.settings, cycle=0)
    with pytest.raises(ValueError, match="expected one of scales for each of 1 steps, got 0"):
        replace(net.settings, steps=(1,))
