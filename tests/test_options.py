"""Options of a section as typed values."""

from __future__ import annotations

import math

import pytest

from pydarknetbn.cfg import REQUIRED, Section, read_cfg, unknown_key_warning
from pydarknetbn.errors import CfgError


def net(**values: str) -> Section:
    """A [net] with these options, the first on line 2."""
    return read_cfg("\n".join(["[net]", *(f"{key}={value}" for key, value in values.items())]).encode()).net


# --- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("64", 64),
        ("+3", 3),
        ("-7", -7),
        ("064", 64),
        ("64.0", 64),
        ("64.", 64),
        ("2147483647", 2147483647),
        ("-2147483648", -2147483648),
        ("0" * 10_000 + "5", 5),
    ],
)
def test_integer_reads_whole_numbers(text, value):
    result = net(width=text).integer("width", 0)
    assert result == value
    assert type(result) is int


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((text, "expected a whole number in plain digits") for text in ["1y", "leaky", "x", "0x10", "1_000"]),
        *((text, "expected a whole number in plain digits") for text in ["nan", "inf", "-", ".", "1e3", "\u0663", "1,2"]),
        ("64.5", "expected a whole number"),
        ("2147483648", "expected 2147483647 or less"),
        ("-2147483649", "expected -2147483648 or more"),
    ],
)
def test_integer_refuses_the_rest_with_file_line_key_and_value(text, expected):
    section = net(height="8", width=text)
    with pytest.raises(CfgError) as caught:
        section.integer("width", 0)
    assert str(caught.value) == f"<bytes>:3: [net] has width={text!r}, {expected}"
    assert (caught.value.file, caught.value.line, caught.value.key) == ("<bytes>", 3, "width")


def test_integer_of_ten_thousand_digits_is_refused():
    with pytest.raises(CfgError, match="expected"):
        net(width="9" * 10_000).integer("width", 0)


@pytest.mark.parametrize(("low", "high", "fits"), [(3, None, True), (4, None, False), (None, 3, True), (None, 2, False)])
def test_integer_limits_are_inclusive(low, high, fits):
    section = net(size="3")
    if fits:
        assert section.integer("size", 0, minimum=low, maximum=high) == 3
    else:
        with pytest.raises(CfgError, match=r"^<bytes>:2: \[net\] has size='3', expected (4 or more|2 or less)$"):
            section.integer("size", 0, minimum=low, maximum=high)


def test_default_is_not_held_against_the_limits():
    assert net(width="8").integer("size", -1, minimum=0) == -1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 0.0001),
        (".1", 0.1),
        ("+3", 3.0),
        ("64.", 64.0),
        ("-0", -0.0),
        ("1E+2", 100.0),
        ("3.4028234663852886e38", 3.4028234663852886e38),
        ("1e-999", 0.0),
    ],
)
def test_number_reads_numbers_as_people_write_them(text, value):
    result = net(decay=text).number("decay", 1.0)
    assert (result, math.copysign(1, result)) == (value, math.copysign(1, value))


@pytest.mark.parametrize("text", ["1y", "nan", "inf", "-inf", "0x1p3", "1e", "e5", ".", "+", "--1", "1e999", "3.41e38", "1_0"])
def test_number_refuses_the_rest(text):
    with pytest.raises(CfgError, match=r"^<bytes>:2: \[net\] has decay='.*', expected a number"):
        net(decay=text).number("decay", 1.0)


@pytest.mark.parametrize(("text", "value"), [("0", False), ("1", True), ("-1", True), ("2", True), ("0.0", False)])
def test_flag_is_off_at_zero_only(text, value):
    assert net(random=text).flag("random") is value


def test_flag_refuses_words():
    with pytest.raises(CfgError, match="expected a whole number"):
        net(random="true").flag("random")


# --- lists and text ---------------------------------------------------------------------------------------------------


def test_lists_read_with_and_without_blanks():
    section = net(layers="-1, 271 ###S4", anchors=" 10,14,\t23,27.5 # small", mask="4")
    assert section.integers("layers") == (-1, 271)
    assert section.numbers("anchors") == (10.0, 14.0, 23.0, 27.5)
    assert section.integers("mask") == (4,)


def test_comma_at_the_end_adds_no_item():
    assert net(layers="-1,").integers("layers") == (-1,)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,,2", "expected a value between commas, item 2 is empty"),
        (",1", "expected a value between commas, item 1 is empty"),
        ("1,2,,", "expected a value between commas, item 3 is empty"),
        (",", "expected a value between commas, item 1 is empty"),
        ("1,2y", "expected a whole number in plain digits as item 2, got '2y'"),
    ],
)
def test_list_with_an_empty_or_wrong_item_is_refused(text, expected):
    section = net(layers=text)
    with pytest.raises(CfgError) as caught:
        section.integers("layers")
    assert str(caught.value) == f"<bytes>:2: [net] has layers={text!r}, {expected}"


def test_text_reads_without_blanks():
    assert net(activation=" leaky\t# note").text("activation", "logistic") == "leaky"


# --- defaults, absent options and what was asked ----------------------------------------------------------------------


def test_absent_option_gives_the_default():
    section = net(width="8")
    assert section.integer("a", 3) == 3
    assert section.number("b", 0.5) == 0.5
    assert section.text("c", "logistic") == "logistic"
    assert section.flag("d") is False
    assert section.flag("e", True) is True
    assert section.integers("f") is None
    assert section.integers("g", (1,)) == (1,)
    assert section.numbers("h") is None
    assert section.numbers("i", (0.5,)) == (0.5,)


@pytest.mark.parametrize("getter", ["integer", "number", "text", "flag", "integers", "numbers"])
def test_absent_required_option_is_refused_at_the_section(getter):
    route = read_cfg(b"[net]\n\n[route]\n").layers[0]
    with pytest.raises(CfgError) as caught:
        getattr(route, getter)("layers", REQUIRED)
    assert str(caught.value) == "<bytes>:3: [route] on line 3 needs layers="
    assert caught.value.key == "layers"


@pytest.mark.parametrize("getter", ["integer", "number", "text", "flag", "integers", "numbers"])
def test_required_option_that_is_there_is_read(getter):
    assert getattr(net(size="1"), getter)("size", REQUIRED) in (1, "1", (1,))


def test_unused_are_those_never_asked_for():
    section = net(width="8", height="6", channels="3", batch="1")
    section.integer("width", 0)
    section.has("channels")
    section.line_of("batch")
    section.text("max_batches", "")
    assert section.unused() == (("height", 3), ("batch", 5))
    assert section.asked == {"width", "channels", "max_batches"}


def test_asking_is_remembered_apart_and_is_no_part_of_the_value():
    first, second = net(width="8"), net(width="8")
    first.integer("width", 0)
    assert second.unused() == (("width", 2),)
    assert first == second


def test_has_and_line_of_tell_presence_and_place():
    section = read_cfg(b"[net]\n[route]\n\nlayers=-1\n").layers[0]
    assert (section.has("layers"), section.has("groups")) == (True, False)
    assert (section.line_of("layers"), section.line_of("groups")) == (4, 2)


def test_error_stands_at_the_key_or_else_at_the_section():
    section = read_cfg(b"[net]\n[route]\n\nlayers=5\n").layers[0]
    assert str(section.error("no layer 5", "layers")) == "<bytes>:4: no layer 5"
    assert str(section.error("no layer 5")) == "<bytes>:2: no layer 5"


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("batch_normalise", "; did you mean batch_normalize?"),
        ("BATCH_NORMALIZE", "; did you mean batch_normalize?"),
        ("epsilon", " and ignores it"),
    ],
)
def test_unknown_key_warning_names_the_nearest_option(key, hint):
    section = read_cfg(f"[net]\n[convolutional]\n{key}=1\n".encode()).layers[0]
    sentence = unknown_key_warning(section, key, ["filters", "batch_normalize", "size"])
    assert sentence == f"<bytes>:3: [convolutional] has no option {key}{hint}"
