"""Figures of emergence, of core heads over fine-tuning, and of two runs: what is drawn is what the tables hold."""

import math

import pandas as pd
import plotly.graph_objects as go
import pytest

from hc_lens import figures
from hc_lens.analysis import compare_runs, core_emergence, core_head_development
from hc_lens.units import Head
from tests.analysis.test_compare import FIRST, SECOND
from tests.analysis.test_development import ABLATION, ATTENTION, HEADS
from tests.analysis.test_emergence import COURSE

EVALUATIONS = pd.DataFrame(
    [
        (step, case, group, accuracy)
        for step, inside, a, b in ((0, 0.3, 0.1, 0.9), (100, 0.7, 0.2, 0.8), (200, 0.8, 0.9, 0.9))
        for case, group, accuracy in (("matched", "ID", inside), ("<b>a", "OOD", a), ("b", "OOD", b))
    ],
    columns=["step", "case", "group", "accuracy"],
)


def trace(figure: go.Figure, name: str) -> go.Scatter:
    found = [each for each in figure.data if each.name is not None and each.name.startswith(name)]
    assert len(found) == 1, [each.name for each in figure.data]
    return found[0]


def test_emergence_curves_draw_accuracy_recall_and_similarity():
    steps = core_emergence(COURSE).steps
    figure = figures.emergence_curves(EVALUATIONS, steps.sample(frac=1, random_state=0), onset=200, level=0.75)
    assert list(trace(figure, "out of domain, mean of 2 cases").y) == pytest.approx([0.5, 0.5, 0.9])
    assert list(trace(figure, "in-domain: matched").y) == [0.3, 0.7, 0.8]
    for name, column in (
        ("core of all seeds", "recall"),
        ("core of the other", "held_out"),
        ("rank", "rank"),
        ("chance", "chance"),
    ):
        assert list(trace(figure, name).y) == pytest.approx(list(steps[column]))
        assert list(trace(figure, name).x) == [0, 100, 200]
    told = [note.text for note in figure.layout.annotations]
    assert "onset, step 200" in told
    assert "level 75 %" in told
    assert len([shape for shape in figure.layout.shapes if shape.x0 == shape.x1 == 200]) == 3


def test_what_holds_by_construction_is_hollow():
    figure = figures.emergence_curves(EVALUATIONS, core_emergence(COURSE).steps)
    for name in ("core of all seeds", "rank correlation"):
        colours = list(trace(figure, name).marker.color)
        assert colours[-1] == "white"
        assert "white" not in colours[:-1]
    assert "white" not in list(trace(figure, "core of the other seeds").marker.color)


def test_chosen_cases_are_the_strong_line_and_names_stay_text():
    figure = figures.emergence_curves(EVALUATIONS, core_emergence(COURSE).steps, cases=["<b>a"])
    strong, faint = trace(figure, "onset judged on: &lt;b&gt;a"), trace(figure, "out of domain")
    assert list(strong.y) == [0.1, 0.2, 0.9]
    assert faint.opacity < strong.opacity
    every = figures.emergence_curves(EVALUATIONS, core_emergence(COURSE).steps, cases=["b", "<b>a"])
    assert trace(every, "out of domain").opacity == 1, "all cases chosen are no choice"


def test_one_seed_has_no_bands():
    single = core_emergence({step: subs[:1] for step, subs in COURSE.items()}).steps
    figure = figures.emergence_curves(EVALUATIONS, single)
    assert not [each for each in figure.data if each.name == "core of the other seeds"], "nothing is held out"
    assert len([each for each in figure.data if each.fill == "toself"]) == 1, "the chance band alone"


def test_core_entry_has_a_row_per_core_head_and_a_line_before_the_onset():
    heads = core_emergence(COURSE).heads
    figure = figures.core_entry(heads, onset=150)
    drawn = figure.data[0]
    assert list(drawn.y) == ["L0.H0", "L0.H1", "L1.H0"]
    assert list(drawn.x) == ["0", "100", "200"]
    assert [list(row) for row in drawn.text] == [["1/3", "3/3", "3/3"], ["0/3", "2/3", "3/3"], ["1/3", "3/3", "3/3"]]
    assert figure.layout.shapes[0].x0 == 1.5
    assert not figures.core_entry(heads).layout.shapes


def test_development_has_two_panels_per_head_on_common_scales():
    table = core_head_development(HEADS, ATTENTION, ABLATION)
    figure = figures.core_head_development(table, onset=100)
    scores = [each for each in figure.data if each.name == "overlap attention"]
    assert len(scores) == len(HEADS)
    assert [each.showlegend for each in scores] == [True, False]
    for unit, each in zip(("L1.H0", "L0.H2"), scores, strict=True):
        rows = table[(table["unit"] == unit) & (table["quantity"] == "overlap attention")]
        assert list(each.y) == list(rows["value"])
    assert [note.text for note in figure.layout.annotations] == ["<b>L1.H0</b>", "<b>L0.H2</b>"]
    only = figures.core_head_development(core_head_development(HEADS, ablation=ABLATION))
    assert {each.name for each in only.data} == {"ablation effect ID", "ablation effect OOD"}


def test_many_heads_go_on_in_further_lines():
    heads = [Head(layer, head) for layer in range(2) for head in range(3)]
    figure = figures.core_head_development(core_head_development(heads, ATTENTION))
    assert len(figure.data) == 6
    assert figure.layout.height > figures.core_head_development(core_head_development(heads[:5], ATTENTION)).layout.height


def test_every_head_is_drawn_once_near_its_counts():
    found = compare_runs(FIRST, SECOND, names=("50 %", "70 %"))
    figure = figures.frequency_scatter(found.frequency, ("50 %", "70 %"))
    places = {point[0]: (x, y) for each in figure.data for x, y, point in zip(each.x, each.y, each.customdata, strict=True)}
    assert len(places) == 8
    for row in found.frequency.itertuples(index=False):
        x, y = places[str(Head(row.layer, row.head))]
        assert math.hypot(x - row.first, y - row.second) < 0.5
    assert len(set(places.values())) == 8, "none hides another"
    assert [each.name for each in figure.data][-1] == "in both cores (2)"
    assert "L0.H0, L1.H0" in figure.layout.annotations[0].text


def test_jaccard_heatmap_parts_the_runs():
    similarity = compare_runs(FIRST, SECOND).similarity
    figure = figures.jaccard_heatmap(similarity, (3, 3))
    assert [list(row) for row in figure.data[0].z] == similarity.to_numpy().tolist()
    assert {(shape.x0, shape.x1, shape.y0, shape.y1) for shape in figure.layout.shapes} == {
        (2.5, 2.5, -0.5, 5.5),
        (-0.5, 5.5, 2.5, 2.5),
    }
    with pytest.raises(ValueError, match=r"the runs have \[3, 2\] subnetworks, 5 in all, the table 6 rows"):
        figures.jaccard_heatmap(similarity, (3, 2))
    with pytest.raises(ValueError, match="one row and one column per set"):
        figures.jaccard_heatmap(similarity.iloc[:2])


def test_bad_tables_are_refused_by_name():
    steps = core_emergence(COURSE).steps
    with pytest.raises(ValueError, match="emergence_curves needs the columns"):
        figures.emergence_curves(EVALUATIONS, steps.drop(columns="chance"))
    with pytest.raises(ValueError, match="no case 'c' was evaluated"):
        figures.emergence_curves(EVALUATIONS, steps, cases=["c"])
    with pytest.raises(ValueError, match="core_entry needs at least one row"):
        figures.core_entry(core_emergence(COURSE).heads[:0])
    with pytest.raises(ValueError, match="core_head_development needs the columns"):
        figures.core_head_development(pd.DataFrame({"step": [0]}))
    with pytest.raises(ValueError, match="frequency_scatter needs the columns"):
        figures.frequency_scatter(pd.DataFrame({"layer": [0]}))
