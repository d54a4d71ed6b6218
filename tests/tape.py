"""Derivatives in float64: each operation knows its own, and `gradients` chains them from the result back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Doubles = NDArray[np.float64]
Back = Callable[[Doubles], Doubles]


class Value:
    """An array, what it was made of, and how a gradient of it goes back to each of these.

    Its margin is how near any number on the way came to where a derivative jumps.
    """

    __array_ufunc__ = None  # or an array on the left would take it for one of its numbers

    def __init__(self, value: ArrayLike, *parents: tuple[Value, Back], margin: float = np.inf) -> None:
        self.value: Doubles = np.asarray(value, np.float64)
        self.parents = parents
        self.margin: float = min([margin, *(parent.margin for parent, _ in parents)])
        self.depth: int = 1 + max((parent.depth for parent, _ in parents), default=0)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    def __add__(self, other: Value | ArrayLike) -> Value:
        other = valued(other)
        return Value(self.value + other.value, (self, _to(self.shape)), (other, _to(other.shape)))

    def __mul__(self, other: Value | ArrayLike) -> Value:
        other = valued(other)
        mine, its = _to(self.shape), _to(other.shape)
        by, of = other.value, self.value
        return Value(of * by, (self, lambda g: mine(g * by)), (other, lambda g: its(g * of)))

    def __neg__(self) -> Value:
        return self * -1.0

    def __sub__(self, other: Value | ArrayLike) -> Value:
        return self + -valued(other)

    def __rsub__(self, other: ArrayLike) -> Value:
        return -self + other

    def __truediv__(self, other: Value | ArrayLike) -> Value:
        return self * power(valued(other), -1)

    __radd__, __rmul__ = __add__, __mul__

    def __getitem__(self, rows: slice) -> Value:
        """Some rows of the first axis."""

        def back(g: Doubles) -> Doubles:
            whole = np.zeros(self.shape)
            whole[rows] = g
            return whole

        return Value(self.value[rows], (self, back))

    def reshape(self, *shape: int) -> Value:
        return Value(self.value.reshape(shape), (self, lambda g: g.reshape(self.shape)))


def _to(shape: tuple[int, ...]) -> Back:
    """Sums what broadcasting repeated."""

    def back(g: Doubles) -> Doubles:
        g = g.sum(tuple(range(g.ndim - len(shape))))
        return g.sum(tuple(axis for axis, n in enumerate(shape) if n == 1 and g.shape[axis] != 1), keepdims=True)

    return back


def valued(x: Value | ArrayLike) -> Value:
    return x if isinstance(x, Value) else Value(x)


def curve(x: Value, y: ArrayLike, slope: ArrayLike, margin: float = np.inf) -> Value:
    """y, a function of each value of x, whose derivative there is the slope."""
    steep = np.asarray(slope, np.float64)
    return Value(y, (x, lambda g: g * steep), margin=margin)


def bent(x: Value, margin: float) -> Value:
    """x, where a derivative jumps so near to it."""
    return curve(x, x.value, np.ones(x.shape), margin)


def power(x: Value, exponent: float) -> Value:
    return curve(x, x.value**exponent, exponent * x.value ** (exponent - 1))


def exp(x: Value) -> Value:
    y = np.exp(x.value)
    return curve(x, y, y)


def total(x: Value, *axes: int) -> Value:
    """The sum over some axes, which stay with length 1."""
    return Value(x.value.sum(axes, keepdims=True), (x, lambda g: np.broadcast_to(g, x.shape)))


def einsum(spec: str, a: Value, b: Value) -> Value:
    """Each letter of a and b stands in the other or in the result too."""
    of_a, of_b, of_out = spec.replace("->", ",").split(",")
    out = np.einsum(spec, a.value, b.value)
    return Value(
        out,
        (a, lambda g: np.einsum(f"{of_out},{of_b}->{of_a}", g, b.value)),
        (b, lambda g: np.einsum(f"{of_out},{of_a}->{of_b}", g, a.value)),
    )


def take(x: Value, places: NDArray[np.intp]) -> Value:
    """x (batch, n) at the places, of any shape, of each row; 0 where the place is -1."""
    n = x.shape[1]
    return Value(_taken(x.value, places), (x, lambda g: _put(g, places, n)))


def put(x: Value, places: NDArray[np.intp], n: int) -> Value:
    """The other way round: each value of x (batch, places) is added to its place in a row of n; -1 goes nowhere."""
    return Value(_put(x.value, places, n), (x, lambda g: _taken(g, places)))


def _taken(x: Doubles, places: NDArray[np.intp]) -> Doubles:
    return np.concatenate([x, np.zeros((len(x), 1))], 1)[:, places]


def _put(x: Doubles, places: NDArray[np.intp], n: int) -> Doubles:
    out = np.zeros((len(x), n + 1))
    np.add.at(out, (slice(None), places), x)
    return out[:, :n]


def joined(values: Sequence[Value], axis: int) -> Value:
    """One behind another."""
    ends = np.cumsum([value.shape[axis] for value in values])

    def part(i: int) -> Back:
        return lambda g: np.take(g, range(ends[i] - values[i].shape[axis], ends[i]), axis)

    return Value(np.concatenate([value.value for value in values], axis), *((value, part(i)) for i, value in enumerate(values)))


def gradients(of: Value, delta: Doubles, wanted: Mapping[str, Value]) -> dict[str, Doubles]:
    """What sum(of * delta) rises by with each value that is wanted."""
    found: dict[int, Doubles] = {id(of): delta}
    reached, waiting = {id(of): of}, [of]
    while waiting:
        for parent, _ in waiting.pop().parents:
            if id(parent) not in reached:
                reached[id(parent)] = parent
                waiting.append(parent)
    for value in sorted(reached.values(), key=lambda each: -each.depth):  # each after all that were made of it
        for parent, back in value.parents:
            found[id(parent)] = found.get(id(parent), 0.0) + back(found[id(value)])
    return {name: found.get(id(value), np.zeros(value.shape)) for name, value in wanted.items()}
