"""What ends the program of the strict fork is a warning here, and with `strict` a refusal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import pydarknetbn as dn
from nets import cfg_of, refusal

CONV = "conv filters=2 size=3 pad=1 activation=linear"
ENDS = {
    "a key that it does not read": ("max_crop=2", [CONV], 5, "[net] does not read max_crop=, which ends the program of hank-ai"),
    "a number with a plus": (
        "",
        [CONV.replace("filters=2", "filters=+2")],
        6,
        'filters=\'+2\' is no number in digits, "." and "-"',
    ),
    "a key twice": ("", [CONV + " filters=3"], 10, "filters= twice: '2' on line 6 counts"),
}


@pytest.mark.parametrize(("net", "sections", "line", "words"), ENDS.values(), ids=ENDS)
def test_end_of_the_strict_program_is_a_warning_and_with_strict_a_refusal(net, sections, line, words):
    text = cfg_of(*sections, net=net)
    (warning,) = dn.load(text, dialect="hank-ai").warnings
    assert warning.startswith(f"<bytes>:{line}: ")
    assert words in warning
    assert refusal(dn.CfgError, text, dialect="hank-ai", strict=True) == warning


def test_other_forks_do_not_end_there():
    assert dn.load(cfg_of(CONV.replace("filters=2", "filters=+2")), dialect="alexeyab", strict=True).warnings == ()


@pytest.mark.skipif(
    "PYDARKNETBN_CFGS" not in os.environ, reason="PYDARKNETBN_CFGS does not name the folder of the forks' cfg files"
)
def test_cfg_that_the_strict_program_runs_is_not_warned_of():
    names = ["yolov4-tiny", "yolov3-tiny", "yolov4-tiny-3l"]
    for path in (Path(os.environ["PYDARKNETBN_CFGS"], "hank-ai", f"{name}.cfg") for name in names):
        assert not [told for told in dn.load(path, dialect="hank-ai").warnings if "ends the program" in told]
