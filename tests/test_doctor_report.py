"""The report: what it says, that it is safe and needs nothing else, and that it works in a browser."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import comparisons
from pydarknetbn.doctor.numbers import multiple_of, ranges, share, state_of, times
from pydarknetbn.doctor.report import html_of, write_html
from pydarknetbn.errors import MissingExtraError

for package in ("plotly", "jinja2"):
    pytest.importorskip(package, reason="the extra report is not installed")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"))), None)


class Page(HTMLParser):
    """The text and elements of a page, its scripts apart."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.scripts: list[dict[str, str | None]] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.figures = ""
        self._in = ""
        self.feed(html)
        self.text = " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in = tag
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append(dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in == "script":
            self.figures += data if self.scripts[-1].get("id") == "figures" else ""
        elif self._in != "style":
            self.texts.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)


def page_of(name: str) -> Page:
    return Page(html_of(comparisons.ALL[name]()))


# --- what it says ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["clean", "caused", "unknown", "without_numbers", "long"])
def test_the_page_has_verdict_sides_notes_and_a_row_a_value(name):
    made, page = comparisons.ALL[name](), page_of(name)
    for text in (made.verdict, made.name, made.profile, made.source, *made.notes):
        assert " ".join(text.split()) in page.text
    assert page.count("tr") == 1 + len(made.rows)
    assert sum(attributes.get("class") == "bad" for tag, attributes in page.elements if tag == "tr") == sum(
        row.bad for row in made.rows
    )


def test_every_cause_has_its_fix_numbers_layers_and_alternatives():
    text = page_of("caused").text
    for expected in (
        "BatchNorm2d(channels, eps=1e-5)",
        "epsilon 0.0010003 , side inside",
        "1, 3-5, 9 (5)",
        "leaky has slope 0.01, Darknet 0.1",
        "layer 6 [convolutional] differs by 9120 times the noise",
        "As well explained by a PReLU of one weight",
        "recorded: bit-equal to recorded outputs",
        "2 values of the other side without a counterpart onnx::Reshape_412 onnx::Transpose_413",
    ):
        assert expected in text, expected


def test_the_state_tells_clean_known_and_unknown_apart():
    assert "No difference beyond rounding" in page_of("clean").text
    assert "2 causes found" in page_of("caused").text
    assert "cause unknown" in page_of("unknown").text


def test_the_curves_are_the_rows_errors():
    figure = json.loads(page_of("caused").figures)["curves"]
    free, alone, _, over, equal = figure["data"]
    made = comparisons.caused()
    assert [told[1] for told in free["customdata"]] == [share(row.free.largest) for row in made.rows]
    assert equal["x"] == [0, next(at for at, row in enumerate(made.rows) if (row.layer, row.stage) == (7, "post"))]
    assert alone["y"][2] == made.rows[2].alone.largest
    assert over["x"] == [number for number, row in enumerate(made.rows) if row.bad]
    assert figure["layout"]["yaxis"]["type"] == "log"


def test_charts_are_there_only_where_there_is_something_to_draw():
    assert set(json.loads(page_of("clean").figures)) == {"curves"}
    assert set(json.loads(page_of("unknown").figures)) == {"curves", "heatmap", "scatter"}


def test_a_value_without_a_number_is_drawn_at_the_upper_end_and_called_infinite():
    page = page_of("without_numbers")
    figure = json.loads(page.figures)["curves"]
    assert [told[1] for told in figure["data"][0]["customdata"]] == ["1.0e-7", "∞", "∞"]
    assert figure["data"][0]["y"][1] == pytest.approx(10 ** figure["layout"]["yaxis"]["range"][1])
    assert "no number" in page.text
    assert "0, 2, 5, 7" in page.text
    assert "a NaN or an infinity counts as the largest" in page.text


def test_numbers_are_short():
    assert [share(value) for value in (None, 0.0, 1.23e-6, 0.5, float("inf"))] == ["", "0", "1.2e-6", "5.0e-1", "∞"]
    assert [times(value) for value in (float("nan"), 1.26, 47.3, 12_449.0, 3e9)] == ["", "1.3", "47", "12,400", "3.0e9"]
    assert ranges([9, 1, 4, 3, 5, 5]) == "1, 3-5, 9"


def test_a_rows_state_tells_noise_and_cause():
    rows = comparisons.caused().rows
    assert state_of(rows[4]) == "22,000 x noise, cause 1"
    assert state_of(rows[1]) == "within"
    assert state_of(comparisons.unknown().rows[3]) == "not shown"
    assert multiple_of(comparisons.row(0, "post", 0.2, 0.1, multiple=0.0)) == pytest.approx(0.1 / 2.5e-7)


# --- safe, and in one piece -----------------------------------------------------------------------------------------------------


def test_no_text_of_a_file_becomes_an_element():
    page, plain = page_of("hostile"), page_of("caused")
    assert page.count("script") == plain.count("script") == 3
    assert page.count("img") == 0
    assert [tag for tag, _ in page.elements if tag == "td"] == [tag for tag, _ in plain.elements if tag == "td"]
    assert comparisons.HOSTILE in page.text


def test_the_page_names_no_other_file_and_forbids_what_it_does_not_need():
    page = page_of("hostile")
    assert not any("src" in attributes for _, attributes in page.elements)
    assert {attributes["href"] for _, attributes in page.elements if "href" in attributes} == {"data:,"}
    policy = next(attributes["content"] for tag, attributes in page.elements if "http-equiv" in attributes)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    assert len(re.findall(r"'sha256-[A-Za-z0-9+/]{43}='", policy)) == 2


def test_plotly_is_embedded_once_and_not_at_all_without_charts():
    assert html_of(comparisons.caused()).count("plotly.js v") == 1
    empty = comparisons.replace(comparisons.clean(), rows=())
    assert len(html_of(empty)) < 30_000


def test_the_file_is_whole_or_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    comparisons.clean().to_html(path)
    before = path.read_bytes()
    assert before.startswith(b"<!doctype html>")
    assert before.rstrip().endswith(b"</html>")
    broken = comparisons.replace(comparisons.clean(), rows=(None,))
    with pytest.raises(AttributeError):
        write_html(broken, path)
    assert [path.read_bytes(), len(list(tmp_path.iterdir()))] == [before, 1]


@pytest.mark.parametrize("package", ["plotly", "jinja2"])
def test_a_missing_package_is_named_with_its_extra(monkeypatch, package, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{package}.*pydarknetbn\[report\]"):
        comparisons.clean().to_html(tmp_path / "report.html")
    assert not list(tmp_path.iterdir())


# --- in a browser ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium or Chrome on the PATH")
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def show(browser, tmp_path) -> Iterator[Callable[..., Any]]:
    """Opens a report; at the end no console message, error or request may have been seen."""
    seen: list[str] = []
    pages = []

    def opened(name: str, width: int = 1280, height: int = 900, **options: Any) -> Any:
        path = tmp_path / f"{name}.html"
        write_html(comparisons.ALL[name](), path)
        page = browser.new_page(viewport={"width": width, "height": height}, **options)
        pages.append(page)
        page.on("console", lambda message: seen.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: seen.append(f"error: {error}"))
        page.on("request", lambda asked: seen.append(f"request: {asked.url[:80]}") if outside(asked.url, path) else None)
        page.goto(path.as_uri())
        return page

    yield opened
    for page in pages:
        page.close()
    assert not seen


def outside(url: str, path: Path) -> bool:
    return url != path.as_uri() and not url.startswith(("data:", "blob:"))


def column(page: Any, number: int) -> list[str]:
    return page.locator(f"#rows tbody tr:visible td:nth-child({number})").all_text_contents()


@pytest.mark.long
@pytest.mark.parametrize("name", ["clean", "caused", "without_numbers", "hostile"])
def test_the_page_draws_its_charts_without_a_word_on_the_console(show, name):
    page = show(name)
    expected = ["curves"] if name == "clean" else ["curves", "heatmap", "scatter"]
    for chart in expected:
        assert page.locator(f"#{chart} svg.main-svg").count() >= 1, chart
    assert page.locator("#curves .scatterlayer .trace").count() >= 3
    if name != "clean":
        assert page.locator("#heatmap image").count() == 1
        assert page.locator("#scatter .points path").count() > 1000
    assert page.title() != "owned"


@pytest.mark.long
def test_a_click_or_enter_on_a_heading_sorts(show):
    page = show("caused")
    alone = page.locator("#rows th button", has_text="alone")
    alone.click()
    values = [float(text) for text in column(page, 7)]
    assert values == sorted(values, reverse=True)
    assert values[0] == 8.1e-2
    assert page.locator("#rows th[aria-sort]").get_attribute("aria-sort") == "descending"
    alone.press("Enter")
    values = [float(text) for text in column(page, 7)]
    assert values == sorted(values)
    page.locator("#rows th button", has_text="ampl.").click()
    assert column(page, 10)[-1] == ""
    page.locator("#rows th button", has_text="layer").press("Space")
    assert column(page, 1)[:3] == ["input", "0", "0"]


@pytest.mark.long
def test_rows_are_filtered_by_words_and_by_the_budget(show):
    page = show("caused")
    page.locator("#bad").check()
    assert column(page, 1) == ["1", "3", "4", "5", "6", "9"]
    page.locator("#find").fill("CONV post")
    assert column(page, 1) == ["6"]
    assert page.locator("#count").text_content() == "1 of 29 rows"
    page.locator("#find").fill("nothing like it")
    assert page.locator("#rows tbody tr:visible").all_text_contents() == ["No row fits."]
    page.locator("#find").fill("")
    page.locator("#bad").uncheck()
    assert page.locator("#count").text_content() == "29 rows"


@pytest.mark.long
def test_all_measures_are_shown_on_demand(show):
    page = show("without_numbers")
    heading = page.locator("#rows th", has_text="first NaN")
    assert not heading.is_visible()
    page.locator("#more").check()
    assert heading.is_visible()
    assert "0, 2, 5, 7" in column(page, 15)


@pytest.mark.long
@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 900)])
def test_nothing_is_wider_than_the_screen(show, width, height):
    page = show("long", width, height, has_touch=width == 390)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    charts = page.evaluate("[...document.querySelectorAll('.plot svg')].map((each) => each.getBoundingClientRect().right)")
    assert max(charts) <= width
    assert page.locator("#rows tbody tr").count() == 300


@pytest.mark.long
def test_the_page_is_dark_where_the_reader_wants_it_and_follows_a_change(show):
    page = show("caused", color_scheme="dark")
    line = "getComputedStyle(document.querySelectorAll('#curves .js-line')[1]).stroke"
    body = "getComputedStyle(document.body).backgroundColor"
    assert (page.evaluate(body), page.evaluate(line)) == ("rgb(20, 22, 25)", "rgb(232, 230, 225)")
    page.emulate_media(color_scheme="light")
    assert (page.evaluate(body), page.evaluate(line)) == ("rgb(250, 249, 246)", "rgb(29, 33, 38)")
