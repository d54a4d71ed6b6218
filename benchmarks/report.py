"""Ratios from medians, and how both are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .running import PEERS
from .suites import SUITES, Suite, Target

PIPES = 0.7
"""A processor whose separate multiplications and additions reach this part of its FMA has pipes for both."""
TARGETED = 2
"""Threads of the runs that targets are meant for."""
QUIET = 0.5
"""Of a load of the machine above this the reader is told."""
NAMES = {
    "torch": "PyTorch", "onnxruntime": "onnxruntime", "opencv": "OpenCV", "numpy": "NumPy's product", "copy": "copy of the array",
    "peak": "registers alone", "fma": "as FMA", "apart": "multiply, then add", "system": "ours, system's libm", "read": "read",
    "both": "in turn", "passive": "in turn, OMP_WAIT_POLICY=passive", "import": "import pydarknetbn", "info": "pydarknetbn info",
}  # fmt: skip


@dataclass(frozen=True)
class Ratio:
    """One contender in one case.

    Args:
        suite, case, contender: where.
        value: the ratio, or the milliseconds more.
        limit: what is to be reached; None where nothing is.
        most: the limit is one from above.
    """

    suite: str
    case: str
    contender: str
    value: float
    limit: float | None = None
    most: bool = False

    @property
    def reached(self) -> bool:
        """Whether it is within its limit; one without a limit is."""
        return self.limit is None or (self.value <= self.limit if self.most else self.value >= self.limit)


def scale(suites: dict[str, Any]) -> float:
    """By what targets shrink where a kernel without FMA cannot reach one with: 1 if the processor has pipes for both."""
    of_peak = [case["ms"] for case in suites.get("peak", {"cases": {}})["cases"].values()]
    if not of_peak or not {"apart", "fma"} <= of_peak[0].keys():
        return 1.0
    part = float(of_peak[0]["fma"] / of_peak[0]["apart"])
    return 1.0 if part >= PIPES else part


def ratios(suites: dict[str, Any]) -> list[Ratio]:
    """Of every case that has its first contender, in the order of the suites."""
    found, factor = [], scale(suites)
    for name, of_suite in suites.items():
        for case, result in of_suite["cases"].items():
            for contender in SUITES[name].contenders:
                value = _value(SUITES[name], contender, result["ms"])
                if value is not None:
                    limit, most = _limit(SUITES[name].targets, case, contender, factor)
                    found.append(Ratio(name, case, contender, value, limit, most))
    return found


def _value(suite: Suite, contender: str, ms: dict[str, float]) -> float | None:
    first = suite.contenders[0]
    if contender == first or contender not in ms or first not in ms:
        return None
    if suite.compare == "apart":
        if contender == "torch":
            return ms["torch"] / ms[first]
        return ms[contender] / (ms[first] + ms["torch"]) if "torch" in ms else None
    if suite.compare == "more":
        return ms[contender] - ms[first]
    return ms[first] / ms[contender] if suite.compare == "faster" else ms[contender] / ms[first]


def _limit(targets: tuple[Target, ...], case: str, contender: str, factor: float) -> tuple[float | None, bool]:
    for target in targets:
        if target.holds_for(case, contender):
            return target.limit * (factor if target.by_peak else 1), target.most
    return None, False


# --- what is shown --------------------------------------------------------------------------------------------------------------


def show(run: dict[str, Any], console: Console) -> None:
    """A table for each suite, and how many targets are reached."""
    how = f"{run['threads']} thread{'s' * (run['threads'] > 1)}, {run['clock']} clock, medians of {run['rounds']} rounds"
    console.print(f"{run['machine']['processor']}, inner loops {run['machine']['variant']}; {how}")
    if run["clock"] == "wall" and run["load"] > QUIET:
        console.print(f"Others computed on this machine (load {run['load']:.2f} before the start): take these times with care.")
    console.print("Ratios are another's time over ours, so above 1 ours is faster, unless the table says otherwise.")
    of_all = ratios(run["suites"])
    for name, of_suite in run["suites"].items():
        console.print()
        if of_suite["cases"]:
            console.print(_table(name, of_suite, [ratio for ratio in of_all if ratio.suite == name], run["machine"]["versions"]))
        elif not of_suite["missing"]:
            console.print(f"{SUITES[name].title}: left out: PYDARKNETBN_CFGS names no folder with the .cfg files")
        for contender, why in of_suite["missing"].items():
            console.print(f"  {SUITES[name].title if not of_suite['cases'] else NAMES.get(contender, contender)}: left out: {why}")
    _show_summary(run, of_all, console)


def _show_summary(run: dict[str, Any], of_all: list[Ratio], console: Console) -> None:
    console.print()
    if (factor := scale(run["suites"])) < 1:
        part = f"separate multiplications and additions reach {factor:.2f} of FMA on this processor"
        console.print(f"{part}: the targets of convolutions and networks are multiplied by that")
    if run["threads"] != TARGETED:
        console.print(f"The targets are meant for {TARGETED} threads.")
    demanded = [ratio for ratio in of_all if ratio.limit is not None]
    short = [ratio for ratio in demanded if not ratio.reached]
    console.print(f"{len(demanded) - len(short)} of {len(demanded)} targets reached" + ("; not:" if short else ""))
    for ratio in short:
        where = f"{ratio.suite} {ratio.case}, {NAMES.get(ratio.contender, ratio.contender)}"
        console.print(f"  {where}: {ratio.value:.2f}, wanted {'at most' if ratio.most else 'at least'} {ratio.limit:.2f}")


def _table(name: str, of_suite: dict[str, Any], of_ratios: list[Ratio], versions: dict[str, str]) -> Table:
    suite = SUITES[name]
    table = Table(title=f"{suite.title} ({name})", title_justify="left", title_style="bold")
    table.add_column("", no_wrap=True)
    for contender in suite.contenders:
        title = NAMES.get(contender, contender) if contender != suite.contenders[0] or name == "peak" else contender
        table.add_column(f"{title} {versions.get(contender, '')}".strip() if contender in PEERS else title, justify="right")
    at = {(ratio.case, ratio.contender): ratio for ratio in of_ratios}
    for case, result in of_suite["cases"].items():
        row = [_cell(result, who, at.get((case, who)), suite.compare, of_suite["missing"]) for who in suite.contenders]
        table.add_row(case, *row)
    return table


def _cell(result: dict[str, Any], contender: str, ratio: Ratio | None, compare: str, missing: dict[str, str]) -> Text:
    if contender not in result["ms"]:
        return Text("left out" if contender in missing else "", style="dim")
    ms = result["ms"][contender]
    text = Text(f"{ms:.3g} ms" if ms < 1000 else f"{ms:.0f} ms")
    if result["work"]:
        text.append(f", {result['work'] / ms / 1e6:.0f} GFLOP/s", style="dim")
    if ratio is not None:
        value = f"{ratio.value:+.0f} ms" if compare == "more" else f"{ratio.value:.2f}"
        text.append(f"  {value}", style="bold")
        if ratio.limit is not None:
            sign = ("≤" if ratio.reached else ">") if ratio.most else ("≥" if ratio.reached else "<")
            text.append(f" {sign} {ratio.limit:.3g}", style="green" if ratio.reached else "red")
    return text
