"""What is read without typer's parser is read as typer reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from pydarknetbn.cli import common
from pydarknetbn.cli.plain import plain_call


def verb(
    cfg: common.CfgArgument,
    weights: common.WeightsArgument = Path("none"),
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
    dialect: common.DialectOption = "auto",
    profile: common.ProfileOption = None,
    threads: common.ThreadsOption = None,
) -> None:
    """Does nothing."""


DEFAULTS = {"weights": Path("none"), "json": False, "quiet": False, "dialect": "auto", "profile": None, "threads": None}
PLAIN = [
    (["a"], {"cfg": Path("a")}),
    (["a", "b"], {"cfg": Path("a"), "weights": Path("b")}),
    (["-q", "a", "--json"], {"cfg": Path("a"), "quiet": True, "json": True}),
    (["a", "--dialect", "x", "b"], {"cfg": Path("a"), "weights": Path("b"), "dialect": "x"}),
    (["--profile", "p", "a b/c"], {"cfg": Path("a b/c"), "profile": "p"}),
]
FOR_TYPER = [
    [],
    ["-h"],
    ["--help"],
    ["a", "b", "c"],
    ["a", "--dialect"],
    ["a", "--dialect", "--json"],
    ["a", "--dialect=x"],
    ["a", "--threads", "2"],
    ["a", "--threads", "two"],
    ["a", "--unknown"],
    ["a", "-qq"],
    ["a", "-q", "-q"],
    ["--", "-a"],
    ["-"],
    ["--json"],
]


def as_typer_reads(words: list[str]) -> dict[str, Any] | None:
    """What the verb would be called with; None where typer refuses or helps."""
    called: list[dict[str, Any]] = []
    app = typer.Typer()

    @app.command()
    def take(
        cfg: common.CfgArgument,
        weights: common.WeightsArgument = Path("none"),
        json: common.JsonOption = False,
        quiet: common.QuietOption = False,
        dialect: common.DialectOption = "auto",
        profile: common.ProfileOption = None,
        threads: common.ThreadsOption = None,
    ) -> None:
        called.append(locals() | {})
        called[0].pop("called")

    CliRunner().invoke(app, words)
    return called[0] if called else None


@pytest.mark.parametrize(("words", "expected"), PLAIN)
def test_a_plain_line_is_a_call(words, expected):
    call = plain_call(verb, words)
    assert call.keywords == expected
    assert as_typer_reads(words) == DEFAULTS | expected


@pytest.mark.parametrize("words", FOR_TYPER, ids=" ".join)
def test_everything_else_is_left_to_typer(words):
    assert plain_call(verb, words) is None


WORDS = st.sampled_from(
    ["a", "b", "", "-q", "--json", "--quiet", "--dialect", "--profile", "--threads", "3", "--", "-", "-x", "--q"]
)


@settings(deadline=None)
@given(st.lists(WORDS, max_size=6))
def test_no_line_is_read_otherwise_than_typer_reads_it(words):
    call = plain_call(verb, words)
    if call:
        assert as_typer_reads(words) == DEFAULTS | call.keywords
