"""Any experiment's report: one page that loads nothing, obeys nothing from the data, and says the same in Markdown."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from hc_lens.figures.style import BLUES, TEMPLATE, figure
from hc_lens.report import Article, Finding, Section, TextTable, page, text_table, write_article
from tests.pages import Links, chromium, until, width_of

_EVIL = "</script><script>window.pwned = 1</script>`|*_[x](y)"
_TABLE = TextTable("Recall of the core", ("step", "recall [95 %]"), (("0", "12.0 [3.0, 21.0]"), ("300", "98.1 [97.0, 99.0]")))


def _curve() -> go.Figure:
    return figure(height=320).add_scatter(x=[0, 300], y=[0.12, 0.981], mode="lines+markers")


def _article(*sections: Section) -> Article:
    return Article(
        title="When does the core emerge?",
        question="Is the core whole before generalization sets in?",
        answer="Yes: at step 300 it holds 98.1 % of the final core (95 % interval 97.0 to 99.0).",
        sections=sections or (Section("recall", "Recall rises", "Of the final core.", _curve(), (_TABLE,)),),
        facts=[("Checkpoints", "8, two of them before onset")],
        warnings=["step 100: 8 points off its target"],
        notes=["The data is synthetic."],
        provenance={"hc_lens": "0.1.0"},
        config={"seeds": [42, 43]},
        findings=[Finding("whole", "Is it whole?", "yes", "it is", "All 14 heads are there.", "Yes if none is missing.")],
    )


def _evil() -> Article:
    table = TextTable(f"title {_EVIL}", (_EVIL, f"column {_EVIL}"), ((_EVIL, f"cell {_EVIL}"),))
    finding = Finding("key", f"question {_EVIL}", "no", "short", f"sentence {_EVIL}", f"rule {_EVIL}")
    drawn = _curve()
    drawn.update_traces(name=_EVIL, showlegend=True, text=[_EVIL, _EVIL])
    return Article(
        _EVIL,
        _EVIL,
        _EVIL,
        [Section("one", f"heading {_EVIL}", _EVIL, drawn, (table,), (table,)), Section("two", _EVIL, f"caption {_EVIL}")],
        [(_EVIL, f"fact {_EVIL}")],
        [f"warning {_EVIL}"],
        [f"note {_EVIL}"],
        {f"key {_EVIL}": _EVIL},
        {f"key {_EVIL}": {_EVIL: [_EVIL]}},
        [finding],
    )


def _cells(markdown: str) -> list[list[str]]:
    """The rows of every table of a Markdown text, each cell as it reads."""
    rows = [line for line in markdown.split("\n") if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]
    return [[re.sub(r"\\(.)", r"\1", cell) for cell in row] for row in cells if not set("".join(row)) <= set("-:")]


def test_page_and_markdown_hold_all_that_the_article_says(tmp_path: Path) -> None:
    assert write_article(_article(), tmp_path / "deep") == tmp_path / "deep" / "report.html"
    text = (tmp_path / "deep" / "report.html").read_text("utf-8").replace("\N{NARROW NO-BREAK SPACE}", " ")
    twin = (tmp_path / "deep" / "report.md").read_text("utf-8").replace("\\", "")
    said = [
        *("When does the core emerge?", "Is the core whole before generalization sets in?"),
        *("Yes: at step 300 it holds 98.1 % of", "8, two of them before onset", "step 100: 8 points off its target"),
        *("The data is synthetic.", "0.1.0", "42, 43", "Is it whole?", "All 14 heads are there.", "Yes if none is missing."),
        *("Recall rises", "Of the final core.", "98.1 [97.0, 99.0]"),
    ]
    assert [part for part in said if part not in text] == []
    assert [part for part in said if part not in twin] == []
    assert "The figure is in report.html; its numbers:" in twin


def test_tables_come_back_from_markdown_as_they_went_in() -> None:
    odd = TextTable("Odd", ("a|b", "c_d", "e"), (("x | y", "*z*", ""), ("L0.H1", "[0, 1]", "\N{MINUS SIGN}0.5")), labels=2)
    assert _cells(page.markdown(_article(Section("odd", "Odd", "", shown=[odd], folded=[_TABLE])))) == [
        ["a|b", "c_d", "e"],
        ["x | y", "*z*", ""],
        ["L0.H1", "[0, 1]", "\N{MINUS SIGN}0.5"],
        *map(list, [_TABLE.columns, *_TABLE.rows]),
        ["setting", "value"],
        ["hc_lens", "0.1.0"],
        ["setting", "value"],
        ["seeds", "42, 43"],
    ]


def test_text_from_the_data_cannot_become_markup() -> None:
    text = page.html(_evil())
    assert _EVIL not in text
    plain = page.html(_article())
    assert text.count("<script") == plain.count("<script")
    assert text.count("</script") == plain.count("</script")
    twin = page.markdown(_evil())
    assert "<script" not in twin.replace("\\<", "")
    assert f"column {_EVIL}" in [row[1] for row in _cells(twin)]


def test_the_page_loads_nothing_and_holds_plotly_once_for_all_figures() -> None:
    text = page.html(_article(*[Section(f"s{n}", "Curve", "", _curve()) for n in range(3)]))
    links = Links()
    links.feed(text)
    assert links.loads == []
    assert not {"link", "iframe", "img", "object", "embed", "base"} & set(links.tags)
    assert text.count("plotly.js v") == 1
    assert "default-src 'none'" in text, "the browser is told to load nothing, too"


def test_an_article_of_tables_alone_is_small_and_without_a_script() -> None:
    text = page.html(_article(Section("table", "A table suffices", "Read it.", shown=[_TABLE])))
    assert "<script" not in text
    assert "<figure" not in text
    assert len(text) < 20_000
    assert "The figure is in" not in page.markdown(_article(Section("table", "A table", "Read it.", shown=[_TABLE])))


def test_what_an_article_does_not_have_leaves_no_empty_part() -> None:
    bare = Article("Title", "Question?", "Answer.", [Section("a", "Heading", "Caption.")])
    for text in (page.html(bare), page.markdown(bare)):
        for heading in ("What the numbers say", "What was run", "Warnings", "small print"):
            assert heading not in text
    assert "<dl" not in page.html(bare)
    lines = ["# Title", "Question?", "**The answer of this run.** Answer.", "## Heading", "Caption."]
    assert [line for line in page.markdown(bare).split("\n") if line] == lines


def test_names_in_backticks_are_code_and_still_cannot_become_markup() -> None:
    article = _article(Section("a", "A", "`rho_low` and `<b>|`: *bounds* ` of it."))
    assert "<code>rho_low</code> and <code>&lt;b&gt;|</code>: *bounds* ` of it." in page.html(article)
    assert "`rho_low` and `<b>|`: \\*bounds\\* \\` of it." in page.markdown(article)


def test_each_line_of_an_answer_is_a_paragraph() -> None:
    article = replace(_article(), answer="One: 3.\n\nTwo: 4.\n")
    assert "<p>One: 3.</p>\n<p>Two: 4.</p>" in page.html(article)
    assert "**The answer of this run.** One: 3.\n\nTwo: 4.\n" in page.markdown(article)


def test_a_figure_without_a_height_gets_the_usual_one() -> None:
    assert "height:450px" in page.html(_article(Section("a", "A", "", go.Figure().add_scatter(y=[1, 2]))))


def test_the_page_has_the_name_that_it_is_given(tmp_path: Path) -> None:
    assert write_article(_article(), tmp_path, "effective_size").name == "effective_size.html"
    assert "The figure is in effective\\_size.html" in (tmp_path / "effective_size.md").read_text("utf-8")


@pytest.mark.parametrize("name", ["", "../report", "a/b", ".hidden", "a b"])
def test_a_name_that_is_no_file_of_the_directory_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="the report's name is"):
        write_article(_article(), tmp_path, name)
    assert list(tmp_path.iterdir()) == []


def test_sections_of_one_anchor_are_refused_by_name() -> None:
    two = [Section(anchor, "H", "C") for anchor in ("recall", "onset", "recall")]
    with pytest.raises(ValueError, match=r"When does the core emerge\?' has several sections with the anchor 'recall'"):
        _article(*two)


def test_findings_of_one_key_are_refused_by_name() -> None:
    (finding,) = _article().findings
    with pytest.raises(ValueError, match="several findings with the key 'whole'"):
        replace(_article(), findings=[finding, finding])


@pytest.mark.parametrize("name", ["title", "question", "answer"])
def test_an_article_needs_its_title_question_and_answer(name: str) -> None:
    with pytest.raises(ValueError, match=f"has no {name}; it needs one"):
        replace(_article(), **{name: " "})


@pytest.mark.parametrize("anchor", ["", "Recall", "1st", "a b", "a_b", "run", "findings", "figure-a", "finding-a"])
def test_an_anchor_that_the_page_cannot_use_is_refused(anchor: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"section {anchor!r}: ")):
        Section(anchor, "H", "C")


@pytest.mark.parametrize("width", [(800, 400), (-1, 400)])
def test_widths_out_of_order_are_refused(width: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"section 'a': width is"):
        Section("a", "H", "C", width=width)


def test_a_section_without_a_heading_is_refused() -> None:
    with pytest.raises(ValueError, match="section 'a' has no heading"):
        Section("a", " ", "C")


def _heatmaps(count: int, size: int) -> go.Figure:
    """Attention of several heads with a menu to choose one."""
    rng = np.random.default_rng(0)
    drawn = go.Figure(layout={"template": TEMPLATE, "height": 300 + 15 * size})
    for place in range(count):
        drawn.add_heatmap(z=rng.random((size, size)).tolist(), colorscale=BLUES, visible=place == 0)
    shown = [[place == chosen for place in range(count)] for chosen in range(count)]
    buttons = [{"label": f"L0.H{n}", "method": "update", "args": [{"visible": shown[n]}]} for n in range(count)]
    drawn.update_layout(updatemenus=[{"buttons": buttons, "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"}])
    return drawn


def _choose(item: int) -> str:
    """JavaScript that opens the menu and clicks its entry."""
    click = "dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    return (
        f"document.querySelector('.updatemenu-header').{click};"
        f"document.querySelectorAll('.updatemenu-dropdown-button')[{item}].{click}"
    )


@pytest.mark.chromium
def test_chromium_menus_work_and_what_is_wide_scrolls_in_its_own_place(tmp_path: Path) -> None:
    wide = pd.DataFrame({"seed": ["seed 42"]} | {f"case {n}": [0.5] for n in range(30)})
    sections = [
        Section("tokens", "Attention", "Choose a head.", _heatmaps(3, 40), width=(700, 900)),
        Section("wide", "A wide table", "", shown=[text_table(wide, "Accuracy", percent=list(wide.columns[1:]))]),
    ]
    path = write_article(_article(*sections), tmp_path)
    evil = write_article(_evil(), tmp_path, "evil")
    drawn = "return document.querySelectorAll('.hm image').length == 1"
    visible = "return document.querySelector('.js-plotly-plot').data.map(trace => trace.visible)"
    with chromium() as browser:
        for width in (1200, 480):
            width_of(browser, width)
            browser.get(path.as_uri())
            until(lambda: browser.execute_script(drawn))
            assert browser.execute_script(drawn)
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width, "the page scrolls sideways"
            scrolls = "return [...document.querySelectorAll('section .scroll')].map(e => e.scrollWidth > e.clientWidth)"
            assert browser.execute_script(scrolls)[:2] == [width == 480, True]
            browser.execute_script(_choose(2))
            until(lambda: browser.execute_script(visible) == [False, False, True])
            assert browser.execute_script(visible) == [False, False, True]
            assert browser.get_log("browser") == []
        browser.get(evil.as_uri())
        until(lambda: browser.execute_script("return document.querySelectorAll('.point').length") > 0)
        assert browser.execute_script("return document.querySelectorAll('.point').length") > 0
        assert browser.execute_script("return window.pwned === undefined")
        assert browser.get_log("browser") == []
