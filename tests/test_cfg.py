"""The text of a .cfg: what is read, what is warned of, what is refused and with which sentence."""

from __future__ import annotations

import contextlib
import io
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydarknetbn.cfg import Cfg, read_cfg
from pydarknetbn.dialect import DIALECTS
from pydarknetbn.errors import CfgError

TIDY = b"[net]\nwidth=8\nheight=6\n\n[convolutional]\nfilters=2\nactivation=leaky\n"


def options(cfg: Cfg) -> list[tuple[str, dict[str, str]]]:
    """What a cfg says, without lines and the spelling of names."""
    return [(section.type, {option.key: option.value for option in section.options}) for section in cfg.sections]


TIDY_OPTIONS = [("net", {"width": "8", "height": "6"}), ("convolutional", {"filters": "2", "activation": "leaky"})]


def refusal(text: bytes, dialect: str = "alexeyab") -> str:
    with pytest.raises(CfgError) as caught:
        read_cfg(text, dialect=dialect)
    return str(caught.value)


# --- what a line is ---------------------------------------------------------------------------------------------------


def test_sections_know_their_name_type_line_and_layer_number():
    cfg = read_cfg(b"# a comment\n[network]\nwidth=8\n\n[conv]\nfilters=2\n[max]\nsize=2\n")
    rows = [(section.name, section.type, section.line, section.index) for section in cfg.sections]
    assert rows == [("[network]", "net", 2, -1), ("[conv]", "convolutional", 5, 0), ("[max]", "maxpool", 7, 1)]
    assert cfg.net is cfg.sections[0]
    assert cfg.layers == cfg.sections[1:]


@pytest.mark.parametrize("end", [b"\r\n", b"\r"], ids=["crlf", "cr"])
def test_crlf_and_lone_cr_parse_like_lf(end):
    assert read_cfg(TIDY.replace(b"\n", end)) == read_cfg(TIDY)


def test_one_crlf_among_lf_parses_like_lf():
    assert read_cfg(TIDY.replace(b"leaky\n", b"leaky\r\n")) == read_cfg(TIDY)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_untidy_text_says_what_tidy_text_says(dialect):
    untidy = (
        b"\xef\xbb\xbf; before\n\n [ net ] # here\n\twid th =8 ; eight\n\n\n#height=1\nheight\t= 6\n"
        b"[convolutional]\n \n# filters=3\nfilters = 2 #note\nactivation=leaky # no = [sign]"
    )
    assert options(read_cfg(untidy, dialect=dialect)) == TIDY_OPTIONS


def test_only_line_ends_of_darknet_end_a_line():
    vertical_tab_form_feed_and_unicode = "a\x0bb\x0cc\x85d\u2028e"
    cfg = read_cfg(f"[net]\nname={vertical_tab_form_feed_and_unicode}\nwidth=8".encode())
    assert cfg.net.text("name", "") == vertical_tab_form_feed_and_unicode
    assert cfg.net.line_of("width") == 3


def test_a_value_keeps_every_equals_sign_after_the_first():
    assert read_cfg(b"[net]\nname=a=b=c\n").net.text("name", "") == "a=b=c"


def test_text_that_is_not_utf8_reads_as_latin1():
    assert read_cfg(b"\xef\xbb\xbf[net]\nname=caf\xe9\n").net.text("name", "") == "café"
    assert read_cfg("[net]\nname=café\n".encode()).net.text("name", "") == "café"


def test_long_lines_and_many_sections_parse():
    anchors = ",".join(["10"] * 30_000)
    layers = "".join(f"[yolo]\nanchors={anchors if index == 700 else 1}\n" for index in range(800))
    cfg = read_cfg(f"[net]\n{layers}".encode())
    assert len(cfg.layers) == 800
    assert cfg.layers[700].integers("anchors") == (10,) * 30_000


@pytest.mark.parametrize(
    ("alias", "canonical", "dialect"),
    [
        ("conv", "convolutional", "hank-ai"),
        ("conn", "connected", "pjreddie"),
        ("max", "maxpool", "alexeyab"),
        ("avg", "avgpool", "alexeyab"),
        ("soft", "softmax", "alexeyab"),
        ("lrn", "normalization", "pjreddie"),
        ("deconv", "deconvolutional", "pjreddie"),
        ("silence", "empty", "alexeyab"),
        ("local_avg", "local_avgpool", "hank-ai"),
    ],
)
def test_alias_has_the_canonical_type(alias, canonical, dialect):
    assert read_cfg(f"[net]\n[{alias}]".encode(), dialect=dialect).layers[0].type == canonical


# --- where the text comes from ----------------------------------------------------------------------------------------


def test_path_bytes_and_binary_file_read_the_same_and_are_named(tmp_path):
    path = tmp_path / "net é.cfg"
    path.write_bytes(TIDY)
    named = {
        str(path): [path, str(path)],
        "<bytes>": [TIDY, bytearray(TIDY), memoryview(TIDY)],
        "<file>": [io.BytesIO(TIDY)],
    }
    for name, sources in named.items():
        for source in sources:
            cfg = read_cfg(source)
            assert (cfg.name, options(cfg)) == (name, TIDY_OPTIONS)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("", "path of the cfg is empty"),
        ("no/such.cfg", "no/such.cfg: does not exist"),
        (".", ".: is a directory"),
        ("a\0b", "cannot be read"),
        ("x" * 5000, "cannot be read"),
        ("[net]\nwidth=8", "pass the text itself as bytes"),
    ],
)
def test_path_that_is_no_file_is_refused(path, words):
    with pytest.raises(CfgError, match=re.escape(words)):
        read_cfg(path)


@pytest.mark.parametrize("source", [None, 3, io.StringIO("[net]")])
def test_other_kinds_of_source_are_type_errors(source):
    with pytest.raises(TypeError, match=r"got int|got NoneType|gave str"):
        read_cfg(source)


def test_unknown_dialect_is_refused():
    with pytest.raises(ValueError, match=r"expected a dialect .*got 'darknet'"):
        read_cfg(TIDY, dialect="darknet")


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "<bytes>: holds no section, expected [net]"),
        (b"# only\n; comments\n", "<bytes>: holds no section, expected [net]"),
        (b"\nclasses = 1\n", "<bytes>:2: expected [net] before any option, got 'classes = 1'"),
        (b"[net]\nlone word\n", "<bytes>:2: expected key=value in [net], got 'lone word' with no ="),
        (b"[net]\nfilters= # none\n", "<bytes>:2: expected key=value in [net], got 'filters=' with no value"),
        (b"[net]\n = 3\n", "<bytes>:2: expected key=value in [net], got '= 3' with no printable key"),
        (
            b"[net]\n\xc2\xa0width=3\n",
            "<bytes>:2: expected key=value in [net], got '\\xa0width=3' with no printable key",
        ),
        (b"[net\nwidth=8\n", "<bytes>:1: expected the name of a section alone in brackets, such as [net], got '[net'"),
        (b"[net] width=8\n", "<bytes>:1: expected the name of a section alone in brackets, such as [net], got '[net]w"),
        (b"[conv]\n[net]\n", "<bytes>:1: the first section has to be [net] or [network], got [conv]"),
        (b"[net]\n[conv]\n[net]\n", "<bytes>:3: layer 1 is a second [net], expected a layer"),
        (
            b"[net]\n[conv]\n[yolo9]\n",
            "<bytes>:3: layer 1 is '[yolo9]', a section that no dialect knows; did you mean [y",
        ),
        (
            b"[net]\n[Convolutional]\n",
            "<bytes>:2: layer 0 is '[Convolutional]', a section that no dialect knows; did y",
        ),
        (b"[net]\n[gaussian_yolo]\n", "did you mean [Gaussian_yolo]?"),
        (b"[net]\n[]\n", "<bytes>:2: layer 0 is '[]', a section that no dialect knows; check its spelling"),
        (
            b"[net]\n[iseg]\n",
            "<bytes>:2: layer 0 is '[iseg]', a section that alexeyab does not know; dialect pjreddie d",
        ),
        (b"[net]\nwidth=8\n\0\n", "<bytes>:3: holds a NUL byte at offset 14, so it is no text"),
        (b"\0\0\0\0\2\0\0\0\5\0\0\0", "<bytes>:1: holds a NUL byte at offset 0, so it is no text"),
        (b"\n<!DOCTYPE html>\n<html>", "is an HTML page, expected a .cfg file"),
        ("[net]\nwidth=8".encode("utf-16"), "is UTF-16 text, expected UTF-8"),
    ],
)
def test_malformed_text_is_refused_with_its_line(text, message):
    assert message in refusal(text)


def test_refusal_carries_file_line_and_key(tmp_path):
    path = tmp_path / "net.cfg"
    path.write_bytes(b"[net]\nfilters=\n")
    with pytest.raises(CfgError) as caught:
        read_cfg(path)
    assert (caught.value.file, caught.value.line, caught.value.key) == (str(path), 2, "filters")


def test_refusal_shows_the_start_of_a_long_line_only():
    assert len(refusal(b"[net]\n" + b"x" * 100_000)) < 200


def test_section_of_other_dialects_names_all_that_know_it():
    assert "hank-ai does not know; dialect pjreddie or alexeyab does" in refusal(b"[net]\n[lrn]\n", "hank-ai")
    assert "pjreddie does not know; dialect alexeyab or hank-ai does" in refusal(b"[net]\n[sam]\n", "pjreddie")


# --- what is warned of ------------------------------------------------------------------------------------------------

WARNED = {
    b"[net]\nsize=8\n\nsize=16\n": "<bytes>:4: [net] has size= twice: '8' on line 2 counts, '16' on line 4 does not",
    b"[net]\n[route]\nlayers=-1,\n": "<bytes>:3: layers= ends with a comma, which is dropped",
    b"[net]\nanchors=61, 45   61, 4\n": "<bytes>:2: anchors= has '45   61' without a comma, which reads as '4561'",
}


@pytest.mark.parametrize(("text", "warning"), WARNED.items(), ids=["duplicate", "comma", "blanks"])
def test_warning_is_one_sentence_that_strict_raises(text, warning):
    assert read_cfg(text).warnings == (warning,)
    with pytest.raises(CfgError) as caught:
        read_cfg(text, strict=True)
    assert str(caught.value) == warning


def test_tidy_text_has_no_warning():
    assert read_cfg(b"[net]\nlearning_rate =0.5\nlayers = -1, 8 ,\t9\n", strict=True).warnings == ()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_first_of_equal_keys_counts_and_each_later_one_is_warned_of(dialect):
    cfg = read_cfg(b"[net]\n[conv]\nfilters=2\nfilters=3\nsize=1\nfilters=4\n[conv]\nfilters=5\n", dialect=dialect)
    assert [layer.integer("filters", 1) for layer in cfg.layers] == [2, 5]
    assert [re.findall(r"line (\d+)", warning) for warning in cfg.warnings] == [["3", "4"], ["3", "6"]]
    assert ["itself refuses" in warning for warning in cfg.warnings] == [dialect == "hank-ai"] * 2


# --- all of it at once ------------------------------------------------------------------------------------------------

PIECES = [
    "[net]",
    "[conv]",
    "[",
    "]",
    "=",
    ",",
    "#",
    ";",
    " ",
    "\t",
    "\n",
    "\r",
    "width",
    "1e-4",
    "-1",
    "\0",
    "\x85",
    "é",
]
TEXTS = st.one_of(
    st.binary(max_size=300),
    st.lists(st.sampled_from(PIECES), max_size=60).map(lambda pieces: "".join(pieces).encode()),
    st.lists(st.sampled_from(PIECES), max_size=60).map(lambda pieces: ("[net]\n" + "".join(pieces)).encode("latin-1")),
)


@given(text=TEXTS, dialect=st.sampled_from(list(DIALECTS)), strict=st.booleans())
def test_any_bytes_parse_or_raise_cfg_error(text, dialect, strict):
    try:
        cfg = read_cfg(text, dialect=dialect, strict=strict)
    except CfgError:
        return
    assert cfg.net.type == "net"
    assert not (strict and cfg.warnings)
    for option in cfg.net.options:
        with contextlib.suppress(CfgError):
            cfg.net.numbers(option.key)


FOLDER = os.environ.get("PYDARKNETBN_CFGS")
TEXT_KEYS = {"activation", "iou_loss", "map", "nms_kind", "policy", "tree", "type"}


@pytest.mark.skipif(not FOLDER, reason="PYDARKNETBN_CFGS names no folder with pjreddie/, alexeyab/ and hank-ai/ in it")
@pytest.mark.parametrize(
    ("dialect", "files", "layers", "duplicates", "joined"),
    [("pjreddie", 45, 2395, 4, 0), ("alexeyab", 87, 8356, 8, 5), ("hank-ai", 52, 6914, 6, 5)],
)
def test_every_published_cfg_parses_under_its_dialect(dialect, files, layers, duplicates, joined):
    cfgs = [read_cfg(path, dialect=dialect) for path in sorted(Path(str(FOLDER), dialect).glob("*.cfg"))]
    for section in (section for cfg in cfgs for section in cfg.sections):
        for option in section.options:
            assert option.key in TEXT_KEYS or section.numbers(option.key)
    warnings = [warning for cfg in cfgs for warning in cfg.warnings]
    assert (len(cfgs), sum(len(cfg.layers) for cfg in cfgs)) == (files, layers)
    assert (sum("twice" in w for w in warnings), sum("comma" in w for w in warnings)) == (duplicates, joined)
    assert len(warnings) == duplicates + joined
