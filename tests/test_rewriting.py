"""One option of a cfg's text is changed, and no other character."""

from __future__ import annotations

import pytest

from pydarknetbn.cfg import read_cfg
from pydarknetbn.rewriting import rewrite

TEXT = "[net]\nwidth=8\nheight = 8 # rows\nchannels=3\n\n[conv]\nbatch_normalize=1\nfilters=2\n[conv]\nfilters=4"


def rewritten(text: str, changes: dict[tuple[int, str], str]) -> str:
    return rewrite(read_cfg(text.encode()), changes)


def test_only_the_value_changes():
    assert rewritten(TEXT, {(0, "batch_normalize"): "0"}) == TEXT.replace("batch_normalize=1", "batch_normalize=0")


def test_blanks_and_comment_stay():
    assert rewritten(TEXT, {(-1, "height"): "16"}) == TEXT.replace("height = 8 # rows", "height = 16 # rows")


def test_same_key_of_another_section_stays():
    assert rewritten(TEXT, {(1, "filters"): "5"}) == TEXT.replace("filters=4", "filters=5")


def test_absent_option_becomes_the_first_of_its_section():
    assert rewritten(TEXT, {(1, "size"): "3"}) == TEXT.replace("[conv]\nfilters=4", "[conv]\nsize=3\nfilters=4")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_option_of_a_section_that_ends_the_text_has_a_line_of_its_own(end):
    assert rewritten(f"[net]{end}[conv]", {(0, "filters"): "3"}) == f"[net]{end}[conv]{end}filters=3{end}"


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_line_ends_stay_and_new_lines_have_the_same(end):
    text = TEXT.replace("\n", end)
    assert rewritten(text, {(1, "size"): "3", (0, "filters"): "7"}) == rewritten(
        TEXT, {(1, "size"): "3", (0, "filters"): "7"}
    ).replace("\n", end)


def test_nothing_to_change_is_the_same_text():
    assert rewritten(TEXT, {}) == TEXT


def test_heading_without_a_line_end_becomes_another_with_its_option():
    cfg = read_cfg(b"[net]\nwidth=1\nheight=1\nchannels=1\n[conv]\n[ batchnorm ]", dialect="alexeyab")
    text = rewrite(cfg, {(1, "layers"): "-1"}, headings={1: "[route]"})
    assert text.endswith("[conv]\n[route]\nlayers=-1\n")
