"""`lint`: each line that is wrong or doubtful, and which fork's program runs the file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import pydarknetbn as dn
from nets import cfg_of

CONV = "conv filters=2 size=3 activation=leaky"


def said(text: bytes) -> list[tuple[int, str, str | None]]:
    return [(finding.line, finding.severity, finding.key) for finding in dn.lint(text)]


def runs(text: bytes) -> dict[str, str]:
    return {fork.name: fork.runs for fork in dn.forks(text)}


def test_tidy_cfg_has_no_finding_and_every_fork_runs_it():
    assert dn.lint(cfg_of(CONV)) == []
    assert runs(cfg_of(CONV)) == {"pjreddie": "yes", "alexeyab": "yes", "hank-ai": "yes"}


FINDINGS = {
    "a word for a number": (cfg_of("conv filters=two activation=leaky"), (6, "error", "filters"), "expected a whole number"),
    "a word nobody here reads": (cfg_of(CONV, net="learning_rate=fast"), (5, "error", "learning_rate"), "expected a number"),
    "an unknown section": (cfg_of("yolo9"), (5, "error", None), "a section that no dialect knows"),
    "an unknown activation": (cfg_of("conv activation=mish2 filters=1"), (6, "error", "activation"), "did you mean mish?"),
    "a route beyond the net": (cfg_of(CONV, "route layers=5"), (10, "error", "layers"), "the layers before it are 0 to 0"),
    "an option that is not computed": (cfg_of("conv_lstm output=2 xnor=1"), (7, "note", None), "is not computed by this package"),
    "a key twice": (cfg_of(CONV + " filters=3"), (9, "warning", None), "'2' on line 6 counts, '3' on line 9 does not"),
    "a key nobody reads": (cfg_of(CONV + " batch_normalise=1"), (9, "warning", None), "did you mean batch_normalize?"),
    "no activation": (cfg_of("conv filters=2"), (5, "warning", "activation"), "every fork takes logistic in silence"),
    "a key of one family": (cfg_of("conv filters=2 activation=leaky", "route layers=-1 groups=2"), (10, "note", "groups"),
                            "only alexeyab and hank-ai read groups="),
    "CRLF": (cfg_of(CONV).replace(b"\n", b"\r\n"), (1, "warning", None), "ends with CRLF"),
    "CR alone": (cfg_of(CONV).replace(b"\n", b"\r"), (1, "warning", None), "ends with CR alone"),
    "two billion filters": (cfg_of("conv filters=2000000000 size=3 activation=leaky"), (5, "error", None), "may still be taken"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "finding", "words"), FINDINGS.values(), ids=FINDINGS)
def test_finding_has_its_line_severity_and_key(text, finding, words):
    found = dn.lint(text)
    assert (found[0].line, found[0].severity, found[0].key) == finding
    assert len([each for each in found if each.line == finding[0]]) == 1
    assert words in found[0].message
    assert str(found[0]).startswith(f"<bytes>:{finding[0]}: {finding[1]}: ")


def test_every_wrong_number_is_told_not_the_first_alone():
    text = cfg_of("conv filters=two size=big activation=leaky", "maxpool stride=x")
    assert said(text) == [(6, "error", "filters"), (7, "error", "size"), (10, "error", "stride")]


def test_what_is_no_text_is_refused():
    with pytest.raises(dn.CfgError, match="HTML page"):
        dn.lint(b"<!DOCTYPE html><html></html>")


# --- who runs it ----------------------------------------------------------------------------------------------------------------

REFUSED = {
    "a key nobody asks for": (cfg_of(CONV, net="max_crop=320"), 5, "[net] does not read max_crop="),
    "a key asked for under another policy": (cfg_of(CONV, net="policy=constant steps=1 scales=1"), 7, "does not read scales="),
    "a key of adam without adam": (cfg_of(CONV, net="B1=.9"), 5, "[net] does not read B1="),
    "a key twice": (cfg_of(CONV + " filters=3"), 9, "stands in [conv] twice, on lines 6 and 9"),
    "an exponent": (cfg_of(CONV, net="learning_rate=1e-3"), 5, "is no number in digits"),
    "a plus sign": (cfg_of("conv filters=+2 activation=leaky"), 6, "is no number in digits"),
    "a lone sign": (cfg_of(CONV, net="hue=-"), 5, "is no number in digits"),
    "a comment of the other kind": (cfg_of("conv filters=2;two activation=leaky"), 6, "is no number in digits"),
    "an old section": (cfg_of("batchnorm"), 5, "section 'batchnorm' is not known"),
    "an unknown word": (cfg_of(CONV, net="policy=cosine"), 5, "policy='cosine' is not known"),
    "sides that are no multiple of 32": (
        cfg_of("conv filters=18 activation=linear", "yolo classes=1 num=3 mask=0,1,2 anchors=1,1,1,1,1,1", w=48, h=32),
        2, "have to be multiples of 32, here 48 and 32"),
    "no image anywhere": (b"[net]\ninputs=4\n[connected]\noutput=2\nactivation=linear\n", 3, "width and height"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "line", "words"), REFUSED.values(), ids=REFUSED)
def test_newest_fork_refuses_with_the_line(text, line, words):
    newest = dn.forks(text)[2]
    assert (newest.name, newest.runs) == ("hank-ai", "no")
    assert newest.reasons[0].line == line
    assert words in newest.reasons[0].message


@pytest.mark.parametrize(("text", "want"), [
    (cfg_of("conv filters=2 activation=mish"), {"pjreddie": "no", "alexeyab": "yes", "hank-ai": "yes"}),
    (cfg_of(CONV, "route layers=-1 groups=2 group_id=1"), {"pjreddie": "differently", "alexeyab": "yes", "hank-ai": "yes"}),
    (cfg_of(CONV, "shortcut from=-1 alpha=.5"), {"pjreddie": "yes", "alexeyab": "differently", "hank-ai": "no"}),
    (cfg_of(CONV).replace(b"\n", b"\r\n"), {"pjreddie": "no", "alexeyab": "yes", "hank-ai": "yes"}),
    (cfg_of("conv filters=2 activation=leaky#slope"), {"pjreddie": "no", "alexeyab": "no", "hank-ai": "yes"}),
    (cfg_of("local filters=2 activation=leaky"), {"pjreddie": "yes", "alexeyab": "yes", "hank-ai": "no"}),
    (b"classes=1\n[net]\nwidth=32\nheight=32\nchannels=3\n[max]\n", {"pjreddie": "no", "alexeyab": "no", "hank-ai": "no"}),
])  # fmt: skip
def test_forks_run_what_they_know(text, want):
    assert runs(text) == want


KINDS = {
    "unused or invalid": "does not read",
    "is not supported": "is not known",
    "duplicate key": "twice",
    "SIGFPE": "no layer has an input",
}


def test_newest_fork_refuses_just_those_of_the_published_cfgs_that_it_did_refuse(golden, cfgs):
    refused = json.loads((golden / "tables-hank-ai.json").read_text())["refused"]
    found = {}
    for path in sorted(cfgs.glob("*/*.cfg")):
        newest = dn.forks(str(path))[2]
        if newest.runs == "no":
            found[f"{path.parent.name}/{path.name}"] = newest.reasons[0]
    assert found.keys() == refused.keys()
    assert len(found) == 87
    for name, message in refused.items():
        kind = next(kind for kind in KINDS if kind in message)
        assert KINDS[kind] in found[name].message, name
        if kind in ("unused or invalid", "duplicate key"):
            line = re.findall(r"#(\d+)", message)[-1]
            assert found[name].line == int(line), name
            assert re.search(rf"\b{found[name].key}\b", message), name


def test_published_cfgs_run_on_the_fork_that_publishes_them(golden, cfgs):
    crashing = set(json.loads((golden / "tables.json").read_text())["reference_crashes_while_parsing"])
    for fork, position in (("pjreddie", 0), ("alexeyab", 1)):
        paths = sorted((cfgs / fork).glob("*.cfg"))
        stopped = {f"{fork}/{path.name}" for path in paths if dn.forks(str(path))[position].runs == "no"}
        assert stopped <= crashing
        assert len(paths) >= 40


def test_no_published_cfg_has_an_error(cfgs):
    for path in sorted(Path(cfgs).glob("*/*.cfg")):
        assert [str(finding) for finding in dn.lint(str(path)) if finding.severity == "error"] == []
