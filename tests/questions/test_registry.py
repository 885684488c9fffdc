"""A question's line in the package's stub makes it known: to the command line, to the report, and to who opens a run."""

from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

import hc_lens as hc
from hc_lens import report
from hc_lens.cli import main
from hc_lens.questions.question import Answer, Question, every_question


def test_names_and_tables_are_each_questions_own() -> None:
    questions = every_question()
    assert [each for each, n in Counter(each.name for each in questions).items() if n > 1] == []
    assert [each for each, n in Counter(name for each in questions for name in each.tables).items() if n > 1] == []


def test_every_question_is_a_name_of_the_package_and_has_its_line_of_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ask"]) == 0
    listed = capsys.readouterr().out
    for question in every_question():
        assert getattr(hc, question.__name__) is question
        assert str(question.__doc__).splitlines()[0] in listed


def test_an_opened_run_has_what_it_was_made_from_and_what_was_asked(line: Path) -> None:
    run = hc.open(str(line / "pruned"))
    assert run.task.name.startswith("synthetic_nli")
    assert run.model.label_names == run.task.labels
    assert [sub.seed for sub in run.subnetworks] == [42, 43, 44]
    run.means.require_model(run.model)
    run.ask(hc.Accuracy(), hc.Sample(4))
    run.ask(hc.HeuristicCore(k=1, permutations=10))
    answer = run.ask(hc.Ablation(controls=1), hc.Sample(4))
    assert run.core.heads
    assert {"effects", "additivity", "evaluation/full"} <= set(run.tables())
    assert "<table" in answer._repr_html_()
    assert repr(answer).startswith("Ablation: ablating")
    page = run.report()
    assert page == line / "pruned" / "report.html"
    assert "ablation" in page.read_text()
    assert [type(each.question).__name__ for each in run.answers()] == [
        *("Training", "Accuracy", "HeuristicCore", "Ablation", "Outcome")
    ]


def test_what_is_asked_again_is_read_and_of_other_rows_measured(line: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = hc.open(line / "pruned")
    heads = ("L0.H0", "L1.H1")
    first = run.ask(hc.Removal(heads), hc.Sample(4))

    def never(*args: object, **kwargs: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr("hc_lens.analysis.in_subnetworks", never)
    again = run.ask(hc.Removal(heads), hc.Sample(4))
    pd.testing.assert_frame_equal(first["removal"], again["removal"])
    with pytest.raises(AssertionError, match="measured again"):
        run.ask(hc.Removal(heads), hc.Sample(3))


def test_a_report_of_objects_in_memory_needs_no_run(line: Path, tmp_path: Path) -> None:
    run = hc.open(line / "pruned")
    subs = run.subnetworks
    table = hc.evaluate(run.model, run.task, subs, hc.Sample(4))
    core = hc.heuristic_core(subs, k=1)
    groups = {**{str(head): [head] for head in core.heads}, "core": core.heads}
    ablation = hc.ablate(run.model, run.task, run.means, groups, hc.Sample(4))
    answers = [
        hc.Accuracy.of_table(table),
        hc.HeuristicCore.of_subnetworks(subs, core, core.null(n=10)),
        hc.Ablation.of_objects(ablation, core.heads),
    ]
    page = hc.write_report(answers, str(tmp_path / "report"), title="In memory")
    told = (tmp_path / "report" / "report.md").read_text()
    assert page.exists()
    assert "# In memory" in told
    assert "Accuracy by case" in told


class Fresh(Question):
    """How many rows has each case?"""

    name = "fresh"
    tables = ("fresh",)

    def measure(self, run: object, sample: object) -> dict[str, pd.DataFrame]:
        cases = run.task.cases  # type: ignore[attr-defined]
        return {"fresh": pd.DataFrame({"case": list(cases), "rows": [len(split) for split in cases.values()]})}

    def short(self, answer: Answer) -> str:
        return f"there are {answer['fresh']['rows'].sum()} rows"

    def sections(self, answer: Answer) -> list[report.Section]:
        table = report.text_table(answer["fresh"], "Rows")
        return [report.Section("fresh", report.heading(answer.short), "Counted.", shown=(table,))]


def test_a_question_of_ones_own_is_asked_kept_and_shown(line: Path) -> None:
    run = hc.open(line / "pruned")
    answer = run.ask(Fresh())
    assert (line / "pruned" / "fresh.parquet").exists()
    kept = Fresh().kept(run)
    assert kept is not None
    assert kept.short == answer.short
    assert "there are" in kept._repr_html_().lower()


def test_a_question_about_pruning_is_not_asked_of_a_fine_tuning_run(line: Path) -> None:
    with pytest.raises(ValueError, match="is a fine-tuning run: this is asked of a pruning run"):
        hc.open(line / "ft").ask(hc.Ablation(("L0.H0",)), hc.Sample(2))
    assert [type(each.question).__name__ for each in hc.open(line / "ft").answers()] == ["Training"]
