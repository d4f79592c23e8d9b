"""The report is one whole page, shows what it was given, and nothing of a user's text acts."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from report_case import EVIL, case
from vastgp.auto.report import ReportData, report_html, write_report
from vastgp.auto.report.html import number, percent, seconds, text

VOID = {"meta", "br", "hr", "img", "link", "input", "path", "use", "rect"}


class Page(HTMLParser):
    """Elements that open and close, names, addresses and texts of a page."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.names, self.attributes, self.texts = [], [], [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.names += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="module")
def data():
    return case()


@pytest.fixture(scope="module")
def page(data):
    return report_html(data)


def test_elements_nest_and_names_are_distinct(page):
    parsed = Page(page)
    assert parsed.open == []
    assert len(parsed.names) == len(set(parsed.names)) > 50
    pointed = {
        value[1:]
        for name, value in parsed.attributes
        if name in ("href", "xlink:href") and value.startswith("#")
    } | set(re.findall(r"url\(#([^)]*)\)", page))
    assert pointed and pointed <= set(parsed.names)


def test_nothing_is_fetched_and_nothing_runs(page):
    parsed = Page(page)
    assert not {"script", "iframe", "object", "embed", "link", "img", "form"} & set(parsed.tags)
    assert "://" not in page and "@import" not in page and "src=" not in page
    assert set(re.findall(r"url\((.)", page)) == {"#"}
    assert not any(name.startswith("on") for name, _ in parsed.attributes)
    assert (
        "default-src 'none'" in dict(parsed.attributes).get("content", "")
        or "default-src 'none'" in page
    )


def test_text_of_users_is_text(page):
    parsed = Page(page)
    assert "<script" not in page
    assert EVIL in parsed.texts  # as a cell, letter by letter
    assert any("price ($)" in shown for shown in parsed.texts)
    hostile = '"><script>x</script>\x00\ud800 $\\frac{$'
    bad = ReportData(
        title=hostile,
        target=hostile,
        rows=3,
        columns=[(hostile, hostile, hostile)],
        leaderboard=[{"method": hostile, "note": hostile}],
        effects=[(hostile, [hostile, "b"], [1.0, 2.0], [0.0, 1.0], [2.0, 3.0])],
        importance=[(hostile, 1.0, 0.1, None)],
        surprises=[(1, 2.0, 3.0, 1.0, {hostile: hostile})],
        advice=[hostile],
    )
    assert "<script" not in report_html(bad)
    assert Page(report_html(bad)).open == []


def test_sections_stand_in_their_order_and_empty_ones_are_left_out(page):
    order = ["data", "model", "leaderboard", "calibration", "importance", "effects", "surprises"]
    assert re.findall(r'<section id="(\w+)"', page) == [*order, "advice", "phases"]
    least = report_html(ReportData(title="t", target="y", rows=5))
    assert re.findall(r'<section id="(\w+)"', least) == ["data"]


def test_the_page_says_what_it_was_given(data, page):
    shown = "\n".join(Page(page).texts)
    for row in [*data.leaderboard, *data.baselines]:
        assert row["method"] in shown
    assert "11.32 ± 0.04" in shown and "failed: the grid of 12 inputs is too large" in shown
    for name, did, words in data.columns:
        assert {name, did, words} <= set(Page(page).texts)
    for one in data.calibration.overall:
        assert percent(one.coverage) in shown
    assert all(line in shown for line in [*data.advice, *data.notes, *data.model])
    assert number(data.surprises[0][1]) in shown
    assert page.count("<svg") == page.count('role="img"') == 4 + 1 + 3
    labels = [value for name, value in Page(page).attributes if name == "aria-label"]
    assert len(labels) == 9 and all(len(label) > 7 for label in labels)
    assert page == report_html(data)


def test_a_classifier_has_a_reliability_diagram():
    rng = np.random.default_rng(0)
    p = rng.uniform(size=300)
    labels = np.where(rng.uniform(size=300) < p, "yes", "no")
    page = report_html(
        ReportData(
            title="t",
            target="y",
            rows=300,
            labels=labels,
            probabilities=np.stack([1 - p, p], axis=1),
            classes=["no", "yes"],
        )
    )
    assert "Reliability, 300 observations" in page and Page(page).open == []


def test_a_page_that_cannot_be_made_leaves_the_old_one(data, tmp_path):
    place = tmp_path / "report.html"
    write_report(data, place)
    before = place.read_bytes()
    assert before.decode("utf-8").endswith("</html>\n")
    broken = dataclasses.replace(data, effects=[("a", [1, 2], [1.0, 2.0], [0.0], [2.0, 3.0])])
    with pytest.raises(ValueError, match="low"):
        write_report(broken, place)
    assert place.read_bytes() == before and list(tmp_path.iterdir()) == [place]
    lone = ReportData(title="half \ud800", target="y", rows=1)
    write_report(lone, place)
    assert "half" in place.read_text("utf-8")


def test_numbers_for_people():
    assert number(12345.6) == "12,346" and number(0.00123456) == "0.001235"
    assert number(-1.5) == "−1.5" and number(1e-12) == "1e−12" and number(1984.0) == "1984"
    assert number(None) == number(float("nan")) == "–" and number(float("inf")) == "∞"
    assert seconds(0.04) == "0.04 s" and seconds(59.6) == "60 s" and seconds(600) == "10.0 min"
    assert text("a<b\x00") == "a&lt;b�"


@pytest.mark.parametrize(("value", "digits", "shown"), [
    (99.7, 2, "100"), (999.7, 3, "1000"), (9999.7, 4, "10,000"), (-99.7, 2, "−100"),
    (0.00123, 2, "0.0012"), (1984.0, 4, "1984"), (123.4, 2, "123"),
])  # fmt: skip
def test_numbers_round_to_numbers(value, digits, shown):
    assert number(value, digits) == shown
