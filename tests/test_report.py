"""A report says what its numbers say: the phenomenon, its absence, or that they cannot tell; on one safe page."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hc_lens.analysis import Ablation as Ablated
from hc_lens.analysis import NullResult
from hc_lens.analysis.effects import CaseRows
from hc_lens.analysis.overlap import Core
from hc_lens.questions import Ablation, Accuracy, HeuristicCore, Outcome, Training
from hc_lens.questions.ablation import shown_effects
from hc_lens.questions.accuracy import by_sparsity, facts
from hc_lens.questions.kept_core import CoreSummary
from hc_lens.questions.page import article, headline
from hc_lens.questions.question import Answer, every_question
from hc_lens.report import Article, Finding, page, write_article
from hc_lens.statistics import Interval
from hc_lens.units import Head
from tests.pages import Links, chromium, until, width_of

_EVIL = "<script>window.pwned = 1</script>"
_CASES = {"matched": "ID", "swap": "OOD", "embedded if": "OOD", "preposition": "OOD"}
_CORE = (Head(0, 1), Head(1, 0), Head(1, 2))
_HEADS = [Head(layer, index) for layer in range(3) for index in range(4)]


@dataclass(frozen=True)
class Inputs:
    """What a study has measured; None for what it has not."""

    evaluation: pd.DataFrame
    frequency: pd.DataFrame
    mlps: pd.DataFrame
    core: CoreSummary
    training: pd.DataFrame | None
    joint: pd.DataFrame | None
    effects: pd.DataFrame | None
    additivity: pd.DataFrame
    title: str = "Do subnetworks differ?"
    question: str = "Do subnetworks of one model generalize differently?"
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ("The data is synthetic.",)
    config: Mapping[str, object] = field(default_factory=lambda: {"train": {"steps": 300}, "seeds": [42, 43]})

    @property
    def answers(self) -> list[Answer]:
        kept = pd.DataFrame({"head": [str(head) for head in self.core.heads]})
        core = {
            "core": kept,
            "frequency": self.frequency,
            "mlps": self.mlps,
            "subnetwork_similarity": pd.DataFrame(columns=["sparsity", "n", "mean"]),
        }
        sets = {"sets": {"core": [str(head) for head in self.core.heads]}}
        ablated = {"effects": self.effects, "additivity": self.additivity}
        found = [
            None if self.training is None else Answer(Training(), {"training": self.training}, {}),
            Accuracy.of_table(self.evaluation),
            Answer(HeuristicCore(), core if self.joint is None else core | {"joint": self.joint}, {"core": self.core}),
            None if self.effects is None else Answer(Ablation(), ablated, sets),
            Answer(Outcome(), {}, {"warnings": self.warnings, "collapsed": {}}),
        ]
        return [answer for answer in found if answer is not None]

    @property
    def article(self) -> Article:
        answered = [type(answer.question) for answer in self.answers]
        return article(
            self.answers,
            title=self.title,
            question=self.question,
            unmeasured=[each for each in every_question() if each not in answered],
            facts=facts(self.evaluation, {}),
            provenance={"hc_lens": "0.1.0", "data": "ab" * 32},
            config=self.config,
            warnings=self.warnings,
            notes=self.notes,
        )


def _inputs(holds: bool = True, seeds: int = 8, **changes: Any) -> Inputs:
    """A study in which every claim holds, or every claim is turned round."""
    core = CoreSummary(_CORE, 16, 16, (0.5, 0.7), 0.02, 0.0, 1.0, 1e-4)
    if not holds:
        core = replace(core, heads=(), p_value=1.0)
    rank = {"rho": 0.8 if holds else -0.8, "p_value": 1e-9, "n_heads": 12}
    inputs = Inputs(
        evaluation=_evaluation(holds, seeds),
        frequency=_frequency(),
        core=core,
        training=_training(holds),
        joint=pd.DataFrame({"i": [0, 8], "j": [0, 8], "heads": [9, 3]}).assign(**rank),
        mlps=pd.DataFrame({"sparsity": [0.5, 0.5], "layer": [0, 1], "count": [8, 8 if holds else 7], "of": [8, 8]}),
        effects=_effects(holds),
        additivity=_additivity(holds),
        warnings=() if holds else ("seed 43 at 70 % sparsity: 8 points off its target",),
    )
    return replace(inputs, **changes)


def _evaluation(holds: bool, seeds: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = []
    for case, group in _CASES.items():
        rows.append(("full", None, 0.0, case, group, 0.95 if group == "ID" else 0.8))
        for target in (0.5, 0.7):
            # Turned round: the in-domain accuracy scatters, and the sparser subnetworks are the better ones.
            wide = (group == "OOD") == holds
            drop = (target if holds else 1 - target) * 0.6 if group == "OOD" else 0.03
            for seed in range(42, 42 + seeds):
                accuracy = (0.95 if group == "ID" else 0.9) - drop + (rng.normal(0, 0.1) if wide else rng.normal(0, 0.003))
                rows.append((f"seed {seed}", seed, target, case, group, accuracy))
    table = pd.DataFrame(rows, columns=["subnetwork", "seed", "sparsity", "case", "group", "accuracy"])
    table = table.assign(low=table["accuracy"] - 0.03, high=table["accuracy"] + 0.03, n=1000, agreement=0.9)
    return table.astype({"seed": "Int64"})


def _frequency() -> pd.DataFrame:
    rows = [(s, head.layer, head.index, 8 if head in _CORE else 3, 8) for s in (0.5, 0.7) for head in _HEADS]
    return pd.DataFrame(rows, columns=["sparsity", "layer", "head", "count", "of"])


def _training(holds: bool) -> pd.DataFrame:
    late = [0.4, 0.4, 0.45, 0.8] if holds else [0.4, 0.42, 0.41, 0.4]
    rows = [(step, case, group, early if group == "ID" else ood)
            for step, early, ood in zip((0, 100, 200, 300), (0.5, 0.9, 0.95, 0.95), late, strict=True)
            for case, group in _CASES.items()]  # fmt: skip
    return pd.DataFrame(rows, columns=["step", "case", "group", "accuracy"])


def _effects(holds: bool) -> pd.DataFrame:
    rows = []
    for place, head in enumerate(_HEADS):
        for case, group in _CASES.items():
            # Turned round: core heads cost in-domain only, the other heads cost out of domain.
            hurt = (head in _CORE and group == "OOD") if holds else (head in _CORE) == (group == "ID")
            effect = 0.002 * place + (0.2 if hurt else 0.0)
            rows.append((str(head), case, "accuracy", effect, effect - 0.02, effect + 0.02))
    rows += [("core", case, "accuracy", 0.5, 0.45, 0.55) for case in _CASES]
    rows += [("core", case, "margin", 3.0, 2.5, 3.5) for case in _CASES]
    return pd.DataFrame(rows, columns=["group", "case", "scale", "effect", "low", "high"]).assign(
        case_group=lambda table: table["case"].map(_CASES)
    )


def _additivity(holds: bool) -> pd.DataFrame:
    sign = 1 if holds else -1
    rows = [
        ("core", case, scale, 0.3, 0.3 - sign * 0.1, sign * 0.1, sign * 0.1 - 0.05, sign * 0.1 + 0.05, False, -0.02, 0.03)
        for scale in ("accuracy", "margin")
        for case in _CASES
    ]
    columns = [
        "set",
        "case",
        "scale",
        "joint",
        "summed",
        "excess",
        "low",
        "high",
        "floor_limited",
        "control_low",
        "control_high",
    ]
    return pd.DataFrame(rows, columns=columns).assign(case_group=lambda table: table["case"].map(_CASES))


def _by_key(inputs: Inputs) -> dict[str, Finding]:
    return {finding.key: finding for finding in inputs.article.findings}


_PRESENT = {
    "onset": "generalization comes after in-domain learning",
    "spread-0.5": "subnetworks that agree in-domain differ out of domain at 50 % sparsity",
    "spread-0.7": "subnetworks that agree in-domain differ out of domain at 70 % sparsity",
    "sparser": "sparser subnetworks generalize worse",
    "core": "the subnetworks share a core of 3 heads, more than chance",
    "rank": "heads kept often at one sparsity are kept often at the other",
    "mlps": "every subnetwork keeps every MLP",
    "core-ood": "ablating a core head hurts out of domain more than in-domain",
    "core-others": "ablating a core head hurts more than ablating another head",
    "additive-accuracy": "core heads together cost more than the sum of their parts on accuracy",
    "additive-margin": "core heads together cost more than the sum of their parts on the margin",
    "clean": "every pruning run went as asked",
}
_ABSENT = {
    "onset": "out-of-domain accuracy never rises during fine-tuning",
    "spread-0.5": "subnetworks do not differ much more out of domain than in-domain at 50 % sparsity",
    "spread-0.7": "subnetworks do not differ much more out of domain than in-domain at 70 % sparsity",
    "sparser": "sparser subnetworks generalize better, not worse",
    "core": "the subnetworks share no more heads than chance",
    "rank": "heads kept often at one sparsity are kept rarely at the other",
    "mlps": "some subnetworks prune MLPs",
    "core-ood": "ablating a core head hurts in-domain more than out of domain",
    "core-others": "ablating a core head hurts less than ablating another head",
    "additive-accuracy": "core heads together cost less than the sum of their parts on accuracy",
    "additive-margin": "core heads together cost less than the sum of their parts on the margin",
    "clean": "pruning gave 1 warning",
}


def test_with_the_phenomenon_every_sentence_says_that_it_is_there() -> None:
    findings = _by_key(_inputs())
    assert {key: finding.short for key, finding in findings.items()} == _PRESENT
    assert {finding.verdict for finding in findings.values()} == {"yes"}


def test_with_inverted_tables_every_sentence_says_that_it_is_absent() -> None:
    # The core keeps its heads here, so that there is something to ablate.
    findings = _by_key(_inputs(holds=False)) | {
        finding.key: finding
        for finding in _inputs(holds=False, core=_inputs().core).article.findings
        if finding.key in ("core-ood", "core-others")
    }
    assert {key: finding.short for key, finding in findings.items()} == _ABSENT
    assert {finding.verdict for finding in findings.values()} == {"no"}


def test_without_a_rise_in_domain_nothing_comes_after_it() -> None:
    training = _training(True)
    training.loc[training["group"] == "ID", "accuracy"] = 0.9
    finding = _by_key(_inputs(training=training))["onset"]
    assert (finding.verdict, finding.sentence.count("90.0 %")) == ("undecided", 1)


def test_a_checkpoint_without_an_accuracy_leaves_the_onset_undecided() -> None:
    training = _training(True)
    training.loc[training.index[-1], "accuracy"] = np.nan
    finding = _by_key(_inputs(training=training))["onset"]
    assert (finding.verdict, "step 300 has no accuracy on 'preposition'" in finding.sentence) == ("undecided", True)


def test_what_was_not_measured_is_said_so() -> None:
    bare = _inputs(training=None, joint=None, effects=None)
    unmeasured = {key for key, finding in _by_key(bare).items() if finding.verdict == "not measured"}
    assert unmeasured == {"onset", "rank", "core-ood", "core-others", "additive-accuracy", "additive-margin"}
    assert "not recorded" not in headline(bare.article.findings)
    assert page.html(bare.article).count("js-plotly-plot") == page.html(_inputs().article).count("js-plotly-plot")


def test_with_one_sparsity_there_is_no_comparison_of_sparsities() -> None:
    table = _inputs().evaluation
    one = _inputs(evaluation=table[table["sparsity"] != 0.7], joint=None)
    assert _by_key(one)["sparser"].verdict == "not measured"
    assert "differ out of domain;" in headline(one.article.findings)


@pytest.mark.parametrize("seeds", [1, 2])
def test_with_too_few_seeds_nothing_over_seeds_is_decided(seeds: int) -> None:
    findings = _by_key(_inputs(seeds=seeds))
    for key in ("spread-0.5", "sparser"):
        assert findings[key].verdict == "undecided"
        assert "fewer than 3 values: no interval" in findings[key].sentence


def test_subnetworks_that_scatter_no_more_than_their_rows_do_not_differ() -> None:
    rng = np.random.default_rng(1)
    table = _inputs().evaluation.copy()
    # 40 rows a case: binomial noise alone gives a standard deviation of 8 points.
    table["accuracy"] = np.where(table["group"] == "ID", 0.95, rng.binomial(40, 0.5, len(table)) / 40)
    table["n"] = np.where(table["group"] == "ID", 1000, 40)
    assert _by_key(_inputs(evaluation=table))["spread-0.5"].verdict != "yes"


def test_the_spread_sentence_has_the_table_s_numbers() -> None:
    inputs = _inputs()
    rows = by_sparsity(inputs.evaluation)[0.5]
    sentence = _by_key(inputs)["spread-0.5"].sentence
    ranges = rows.groupby("case")["accuracy"].agg(lambda accuracy: accuracy.max() - accuracy.min())
    widest = rows[rows["case"] == ranges.drop("matched").idxmax()]["accuracy"]
    assert f"in-domain accuracy varies by {100 * ranges['matched']:.1f} points" in sentence
    assert f"{100 * widest.min():.1f} % to {100 * widest.max():.1f} %" in sentence
    assert "The full model scores 95.0 % in-domain and 80.0 % out of domain" in sentence
    assert "answer on 90.0 % of in-domain and 90.0 % of out-of-domain rows" in sentence


def test_a_core_that_chance_explains_is_undecided() -> None:
    core = replace(_inputs().core, null_high=4.0, p_value=0.2)
    finding = _by_key(_inputs(core=core))["core"]
    assert finding.verdict == "undecided"
    assert "p = 0.2" in finding.sentence


def test_a_core_names_its_heads_layers_and_null() -> None:
    sentence = _by_key(_inputs(core=replace(_inputs().core, k=15)))["core"].sentence
    assert "3 heads kept in 15 of 16 subnetworks (50 % and 70 % sparsity): L0.H1, L1.H0 and L1.H2." in sentence
    assert "Chance gives 0 to 1 (layer-stratified, 95 %; p = 0.0001)" in sentence
    assert "layers 0 and 1 (of 0 to 2); 3 of 3 in the lower half" in sentence


def test_a_core_whose_k_was_chosen_from_the_data_says_that_p_is_optimistic() -> None:
    sentence = _by_key(_inputs(core=replace(_inputs().core, k=15, chosen_for=3)))["core"].sentence
    assert "The 15 was chosen from these same subnetworks" in sentence
    assert "a core of at least 3 heads, so that p is optimistic." in sentence
    assert "optimistic" not in _by_key(_inputs())["core"].sentence


def test_the_tables_of_accuracy_and_effects_give_intervals() -> None:
    inputs = _inputs()
    shown = {table.title: table for section in inputs.article.sections for table in (*section.shown, *section.folded)}
    accuracy = shown["Accuracy by case (%)"]
    assert accuracy.columns[2] == "full [95 %]"
    assert accuracy.rows[0][:3] == ("ID", "matched", "95.0 [92.0, 98.0]")
    effects = shown["Accuracy lost to ablation (points [95 %])"]
    swap = dict(zip(effects.columns, next(row for row in effects.rows if row[1] == "swap"), strict=True))
    assert swap["core"] == "50.0 [45.0, 55.0]"
    assert "[" not in swap["mean of 9 other heads"], "these effects hold no interval of that mean"


def test_the_mean_of_other_heads_keeps_the_interval_it_comes_with() -> None:
    mean = pd.DataFrame([("mean of 9 other heads", case, "accuracy", 0.01, 0.005, 0.02) for case in _CASES])
    mean.columns = ["group", "case", "scale", "effect", "low", "high"]
    mean["case_group"] = mean["case"].map(_CASES)
    inputs = _inputs(effects=pd.concat([_effects(True), mean], ignore_index=True))
    shown = shown_effects(inputs.answers[3])
    rows = shown[shown["group"] == "mean of 9 other heads"]
    assert len(rows) == len(_CASES)
    assert set(rows["low"]) == {0.005}
    bars = page.html(inputs.article)
    assert "95 % interval 0.5% to 2.0%" in bars
    assert "without an interval" not in bars
    assert "without an interval" in page.html(_inputs().article)


def _ood(table: pd.DataFrame, scale: str, **values: object) -> pd.DataFrame:
    rows = (table["scale"] == scale) & (table["case"] != "matched")
    return table.assign(**{name: table[name].where(~rows, value) for name, value in values.items()})


def test_intervals_that_include_zero_leave_additivity_undecided() -> None:
    table = _ood(_additivity(True), "margin", low=-0.1)
    findings = _by_key(_inputs(additivity=table))
    assert findings["additive-margin"].verdict == "undecided"
    assert "for the other 3 the interval includes 0" in findings["additive-margin"].sentence
    assert findings["additive-accuracy"].verdict == "yes", "the other scale is judged apart"


def test_floor_limited_results_are_named_and_not_counted() -> None:
    table = _additivity(True)
    table.loc[(table["scale"] == "accuracy") & (table["case"] == "swap"), "floor_limited"] = True
    finding = _by_key(_inputs(additivity=table))["additive-accuracy"]
    assert "2 of 2 results are super-additive" in finding.sentence
    assert "Floor-limited and not counted: swap." in finding.sentence
    everywhere = _by_key(_inputs(additivity=table.assign(floor_limited=True)))["additive-accuracy"]
    assert everywhere.verdict == "undecided"


def test_random_sets_that_do_as_much_are_reported() -> None:
    table = _ood(_additivity(True), "margin", control_high=0.5)
    sentence = _by_key(_inputs(additivity=table))["additive-margin"].sentence
    assert "Of the super-additive ones, 0 of 3 lie beyond 97.5 % of layer-matched random sets." in sentence
    without = _additivity(True).assign(control_low=np.nan, control_high=np.nan)
    assert "no control with random sets" in _by_key(_inputs(additivity=without))["additive-margin"].sentence


def test_in_domain_results_do_not_decide_additivity() -> None:
    table = _additivity(False)
    table.loc[table["case"] == "matched", ["excess", "low", "high"]] = (9.0, 8.0, 10.0)
    assert _by_key(_inputs(additivity=table))["additive-margin"].verdict == "no"


def test_the_analyses_tables_fit_as_they_are() -> None:
    rng = np.random.default_rng(0)
    cases = tuple(CaseRows(case, group, 50 * i, 50 * i + 50, 0.0) for i, (case, group) in enumerate(_CASES.items()))
    sets = [(head,) for head in _HEADS] + [_CORE, (Head(2, 0), Head(2, 1), Head(0, 0))]
    values = lambda: {"accuracy": rng.integers(0, 2, 200).astype(float), "margin": rng.normal(size=200)}  # noqa: E731
    groups = {str(head): (head,) for head in _HEADS} | {"core": _CORE}
    ablation = Ablated(groups, {"core": [sets[-1]]}, cases, values(), {units: values() for units in sets})
    kept = np.ones((4, 3, 5), dtype=bool)
    core = Core(_CORE, 4, kept)
    null = NullResult(3, 0.02, 0.03, 0.1, Interval(0.0, 1.0), 2, 0.001, 1000)
    inputs = _inputs(
        core=CoreSummary.of(core, null, [0.5, 0.7]),
        effects=ablation.table(_CORE),
        additivity=ablation.super_additivity(),
    )
    assert inputs.core.null_high == 1.0
    assert {finding.verdict for finding in inputs.article.findings} <= {"yes", "no", "undecided"}
    text = page.html(inputs.article)
    assert "mean of 9 other heads" in text
    assert "3 of 3 in the lower half" in text


@pytest.mark.parametrize("name", ["evaluation", "frequency", "training", "joint", "mlps", "effects"])
def test_a_table_without_a_column_is_named(name: str) -> None:
    table: pd.DataFrame = getattr(_inputs(), name)
    column = table.columns[1]
    with pytest.raises(ValueError, match=rf"the {name} table needs the columns .*'{column}'"):
        _ = _inputs(**{name: table.drop(columns=column)}).answers


def test_an_evaluation_without_subnetworks_is_refused() -> None:
    full = _inputs().evaluation.query("subnetwork == 'full'")
    with pytest.raises(ValueError, match="needs at least one subnetwork"):
        _ = _inputs(evaluation=full).answers


def test_the_page_loads_nothing_and_holds_plotly_once() -> None:
    text = page.html(_inputs().article)
    links = Links()
    links.feed(text)
    assert links.loads == []
    assert not {"link", "iframe", "img", "object", "embed", "base"} & set(links.tags)
    assert "@import" not in text.split("</style>")[0]
    assert text.count("plotly.js v") == 1
    assert "default-src 'none'" in text, "the browser is told to load nothing, too"
    assert len(text) < 6_000_000


def test_page_and_markdown_say_the_same_and_show_what_was_run(tmp_path: Path) -> None:
    inputs = _inputs()
    assert write_article(inputs.article, tmp_path / "run") == tmp_path / "run" / "report.html"
    text = (tmp_path / "run" / "report.html").read_text("utf-8").replace("\N{NARROW NO-BREAK SPACE}", " ")
    twin = (tmp_path / "run" / "report.md").read_text("utf-8")
    for finding in inputs.article.findings:
        for part in finding.sentence.split(". "):
            assert part.replace("&", "&amp;").replace("'", "&#39;") in text
            assert part in twin.replace("\\", "")
    for run in ("train.steps", "300", "42, 43", "abababababab…", "0.1.0", "The data is synthetic.", "seeds 42 to 49"):
        assert run in text
        assert run in twin.replace("\\", "")
    assert "| OOD | swap |" in twin
    assert not [line for line in twin.split("\n") if line.startswith("|") and not line.rstrip().endswith("|")]


def test_every_row_of_a_markdown_table_has_the_columns_of_its_head() -> None:
    width = 0
    for line in page.markdown(_inputs().article).split("\n"):
        cells = line.replace("\\|", "").count("|")
        assert not cells or not width or cells == width, line
        width = cells


def _evil_inputs() -> Inputs:
    inputs = _inputs()
    named = {"case": {"swap": _EVIL}}
    return replace(
        inputs,
        title=f"Title {_EVIL}",
        question=f"{_EVIL}?",
        evaluation=inputs.evaluation.replace(named),
        training=_training(True).replace(named),
        effects=_effects(True).replace(named).replace({"group": {"core": f"core | {_EVIL}"}}),
        additivity=_additivity(True).replace(named).replace({"set": {"core": f"core | {_EVIL}"}}),
        config={f"key{_EVIL}": _EVIL},
        warnings=(_EVIL,),
        notes=(_EVIL,),
    )


def test_text_from_the_data_cannot_become_markup() -> None:
    text = page.html(_evil_inputs().article)
    assert _EVIL not in text
    assert "<script>window" not in text
    assert text.count("<script") == page.html(_inputs().article).count("<script")
    twin = page.markdown(_evil_inputs().article)
    assert _EVIL not in twin
    assert r"core \| \<script\>" in twin


def test_an_earlier_report_survives_a_failing_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_article(_inputs().article, tmp_path)
    before = (tmp_path / "report.html").read_bytes()

    def fail() -> str:
        raise RuntimeError("no plotly")

    monkeypatch.setattr(page, "get_plotlyjs", fail)
    with pytest.raises(RuntimeError, match="no plotly"):
        write_article(_inputs(holds=False).article, tmp_path)
    assert (tmp_path / "report.html").read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["report.html", "report.md"]


def test_a_report_that_cannot_be_written_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="report"):
        write_article(_inputs().article, tmp_path / "file")


@pytest.mark.chromium
def test_chromium_draws_every_figure_without_an_error_or_a_request(tmp_path: Path) -> None:
    path = write_article(_evil_inputs().article, tmp_path)
    with chromium() as browser:
        for width in (1200, 600):
            width_of(browser, width)
            browser.get(path.as_uri())
            count = "return document.querySelectorAll('figure .js-plotly-plot > .plot-container .main-svg:first-child').length"
            until(lambda count=count: browser.execute_script(count) == 6)
            assert browser.execute_script(count) == 6
            assert browser.get_log("browser") == []
            marks = "[...document.querySelectorAll('.js-plotly-plot')].map(p => p.querySelectorAll('.point, .hm image').length)"
            assert min(browser.execute_script(f"return {marks}")) > 0, "a figure without marks is not drawn"
            assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
            assert browser.execute_script("return window.pwned === undefined")
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width, "the page scrolls sideways"
