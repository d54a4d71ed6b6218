"""A PyTorch module as the other side: every operation's value, and the module stays as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pydarknetbn as dn
from nets import noise
from pydarknetbn.doctor.sources import trace_of

torch = pytest.importorskip("torch", reason="torch is not installed")

nn, functional = torch.nn, torch.nn.functional

X = noise(2, 3, 4, 5, seed=1) - np.float32(0.5)


class Port(nn.Module):
    """A convolution, and whatever a function makes of its value."""

    def __init__(self, rest: Any = functional.relu) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1, bias=False)
        self.rest = rest
        with torch.no_grad():
            self.conv.weight.copy_(torch.from_numpy(noise(4, 3, 1, 1, seed=2) - np.float32(0.5)))

    def forward(self, x: Any) -> Any:
        return self.rest(self.conv(x))


def values(trace: Any) -> dict[str, Any]:
    return {tensor.name: tensor.array for tensor in trace.tensors}


def sentence(kind: type[dn.DarknetError], other: Any, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        trace_of(other, X, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def sums() -> Any:
    kernel = (noise(4, 3, 1, 1, seed=2) - np.float32(0.5))[:, :, 0, 0].astype(np.float64)
    return np.einsum("oi,nihw->nohw", kernel, X.astype(np.float64))


def test_modules_and_functions_are_seen_with_their_path():
    trace = trace_of(Port(), X)
    assert [(tensor.name, tensor.op) for tensor in trace.tensors] == [("conv: conv", "conv"), ("relu", "relu")]
    assert (trace.framework, trace.outputs) == ("torch", ("relu",))
    np.testing.assert_allclose(values(trace)["conv: conv"], sums(), atol=2e-7)  # three products in float32
    assert np.array_equal(values(trace)["relu"], values(trace)["conv: conv"].clip(0))


def test_an_operation_in_place_leaves_the_value_before_it():
    trace = trace_of(Port(lambda y: functional.leaky_relu_(y, 0.1).mul_(2)), X)
    assert list(values(trace)) == ["conv: conv", "leaky_relu", "mul"]
    np.testing.assert_allclose(values(trace)["conv: conv"], sums(), atol=2e-7)
    np.testing.assert_allclose(values(trace)["mul"], 2 * np.where(sums() > 0, sums(), 0.1 * sums()), atol=4e-7)
    assert trace.outputs == ("mul",)


def test_a_part_that_is_written_makes_the_whole_another_value():
    def spoil(y: Any) -> Any:
        y[:, :2].sigmoid_()
        return y

    trace = trace_of(Port(spoil), X)
    last = values(trace)[trace.outputs[0]]
    assert last.shape == (2, 4, 4, 5)
    np.testing.assert_allclose(last[:, :2], 1 / (1 + np.exp(-sums()[:, :2])), atol=2e-7)
    np.testing.assert_allclose(last[:, 2:], sums()[:, 2:], atol=2e-7)


def test_a_module_that_is_called_twice_has_two_values():
    relu = nn.ReLU()
    model = nn.Sequential(relu, nn.Conv2d(3, 3, 1), relu)
    assert list(values(trace_of(model, X))) == ["0: relu", "1: conv", "0: relu (2)"]


def test_tuples_and_dicts_of_outputs_are_known():
    pair = trace_of(Port(lambda y: (y.relu(), [y.tanh()])), X)
    assert pair.outputs == ("relu", "tanh")
    assert trace_of(Port(lambda y: {"a": y.sigmoid(), "b": 3}), X).outputs == ("sigmoid",)


def test_the_mode_is_kept_and_buffers_and_random_numbers_are_as_before():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Dropout(0.5))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(3)
    drawn = torch.rand(4)
    torch.manual_seed(3)
    trace = trace_of(model, X)
    assert model.training
    assert trace.source.endswith("training mode")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.rand(4), drawn)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    normal = values(trace)["1: batch_norm"]
    np.testing.assert_allclose(normal.mean((0, 2, 3)), 0, atol=1e-6)  # of the batch, as in training
    assert trace_of(model.eval(), X).source.endswith("eval mode")


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_precision_is_fed_and_seen_as_it_is(name):
    trace = trace_of(Port().to(getattr(torch, name)), X)
    rounded = torch.from_numpy(X).to(getattr(torch, name)).float().numpy()
    assert np.array_equal(np.asarray(trace.input, np.float32), rounded)
    assert not np.array_equal(rounded, X)
    made = torch.from_numpy(np.asarray(values(trace)["relu"], np.float32))
    assert torch.equal(made, made.to(getattr(torch, name)).float())


def test_other_input_is_fed_as_it_is():
    given = X.transpose(0, 2, 3, 1)
    trace = trace_of(Permuted(), X, other_input=given)
    assert np.array_equal(trace.input, given)
    np.testing.assert_allclose(values(trace)["port.conv: conv"], sums(), atol=2e-7)


class Permuted(nn.Module):
    """Takes its channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.port = Port()

    def forward(self, x: Any) -> Any:
        return self.port(x.permute(0, 3, 1, 2))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_a_scripted_module_is_seen_as_well():
    trace = trace_of(torch.jit.script(nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU())), X)
    assert [tensor.op for tensor in trace.tensors] == ["conv", "relu"]


def test_a_module_that_fails_says_where():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(5, 2, 1))
    assert sentence(dn.StateError, model).startswith("Sequential raised RuntimeError in 1: conv")
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert sentence(dn.DtypeError, Port(), other_input="picture") == "other_input is a str; expected an array or tensor"
