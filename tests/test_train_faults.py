"""What a profile's program trains wrongly for a network is named, and nothing else."""

from __future__ import annotations

from typing import Any

import pydarknetbn as dn
from nets import cfg_of
from trainings import ALL, moved, network


def test_a_network_that_trains_as_its_formulas_say_has_no_faults() -> None:
    assert network().training_faults == ()


def test_layers_that_never_move_are_named() -> None:
    faults = network(profile="alexeyab-cpu").training_faults
    assert "alexeyab-cpu: layer 2 [connected] is never updated: its parameters stay as they start" in faults
    beta = "alexeyab-cpu: β (biases) of the batchnorm of layers 0 and 1 [convolutional] gets no gradient and never moves"
    assert beta in faults
    net = network(profile="alexeyab-cpu")
    assert moved(net, 3) == [ALL - {"biases"}, ALL - {"biases"}, set(), set()]
    alone = dn.load(cfg_of("batchnorm", "conn output=3", "softmax"), dialect="pjreddie")
    assert alone.training_faults[0] == "pjreddie-cpu: layer 0 [batchnorm] is never updated: its parameters stay as they start"


def test_gradients_that_are_overwritten_or_pile_up_are_named() -> None:
    branched = cfg_of(
        "conv filters=4 size=1", "conv filters=4 size=3 pad=1", "conv filters=4 size=1", "shortcut from=-3", "avgpool", "softmax"
    )
    found = dn.load(branched, profile="alexeyab-cpu").training_faults
    assert any("layer 1 [convolutional] overwrites the delta of a layer that it reads" in each for each in found)
    assert any("the delta of layer 4 [avgpool] is never cleared" in each for each in found)
    assert dn.load(branched, profile="pjreddie-cpu").training_faults == ()
    one = branched.replace(b"size=3\npad=1", b"size=1")
    found = dn.load(one, profile="pjreddie-cpu").training_faults
    assert len(found) == 1
    assert found[0].startswith("pjreddie-cpu: layer 1 [convolutional] overwrites the delta of a layer that it reads")


def test_other_pixels_and_epsilons_are_named() -> None:
    strided = cfg_of("conv filters=4 size=1 stride=2 batch_normalize=1", "conn output=3", "softmax")
    found = dn.load(strided, dialect="pjreddie").training_faults
    assert "layer 0 [convolutional], of size 1 with a stride, reads other pixels than the stride says" in found[0]
    assert "forward divides by √v+1e-06, backward by √(v+1e-05)" in found[1]


def test_a_learning_rate_that_is_not_read_is_named() -> None:
    found = network("", "", "learning_rate=2", profile="alexeyab-cpu").training_faults
    assert any("learning_rate= of layer 2 [connected] has no effect" in each for each in found)


def faults(*sections: str, dialect: str, **options: Any) -> list[str]:
    found = dn.load(cfg_of(*sections, "connected output=3", "softmax", **options), dialect=dialect).training_faults
    return [fault.split(": ", 1)[1] for fault in found]


def test_backwards_that_are_no_derivatives_are_named() -> None:
    for layer in ("l2norm", "normalization size=5"):
        assert f"the backward of layer 0 [{layer.split()[0]}] is not the derivative of the forward" in faults(
            layer, dialect="pjreddie"
        )
    dropped = "the backward of layer 1 [dropout] is not the derivative of the forward"
    assert dropped in faults("conv filters=2 activation=tanh", "dropout", dialect="pjreddie")
    assert dropped not in faults("conv filters=2 activation=leaky", "dropout", dialect="pjreddie")
    smooth = faults("connected output=2", "cost type=smooth", dialect="pjreddie")
    assert "the delta of layer 1 [cost], type=smooth, points away from the truth where it is more than 1 off" in smooth
    assert not any("smooth" in fault for fault in faults("connected output=2", "cost type=smooth", dialect="alexeyab"))


def test_what_goes_wrong_backward_through_time_is_named() -> None:
    gru = faults("gru output=2", dialect="pjreddie", w=1, h=1)
    assert "backward through layer 0 [gru]: the delta ends there, and nothing in it learns" in gru
    crnn = faults("crnn output_filters=2 hidden_filters=2 batch_normalize=1", dialect="pjreddie")
    assert "backward through layer 0 [crnn]: the learning rate of the convolutions inside is 0" in crnn
    beta = "β (biases) of the batchnorm of layer 0 [crnn] gets no gradient and never moves"
    assert beta in faults("crnn output=2 hidden=2 batch_normalize=1 size=3 pad=1", dialect="alexeyab")
