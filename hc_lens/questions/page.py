"""The page of a run: every question that it holds the answer to, and the answer of the main line in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hc_lens import report
from hc_lens.cache import options_of
from hc_lens.precision import told as precision_told
from hc_lens.pruning import pruned_evaluation
from hc_lens.questions.accuracy import facts, spreads
from hc_lens.questions.question import Answer, Question, every_question

if TYPE_CHECKING:
    from hc_lens.questions.subject import Subject

QUESTION = (
    "Pruned with different seeds, a fine-tuned classifier gives subnetworks that agree in-domain. Do they generalize alike, "
    "which heads do all of them keep, and what do those heads do out of domain?"
)
_LEADING = ("core", "core-ood", "additive-margin")


def write_report(
    answers: Sequence[Answer], directory: str | Path, *, title: str = "Which subnetworks generalize?", question: str = QUESTION
) -> Path:
    """Write `report.html` and `report.md` of answers, from runs or from objects in memory; returns the page's path.

    Raises:
        ValueError: for no answers.
        OSError: naming the file, when it cannot be written; nothing half-written stays.
    """
    return report.write_article(article(answers, title=title, question=question), Path(directory))


def article(
    answers: Sequence[Answer],
    *,
    title: str,
    question: str = QUESTION,
    unmeasured: Sequence[type[Question]] = (),
    **rest: Any,
) -> report.Article:
    """Answers as an article: their sections in their order, their findings and what is said of `unmeasured` in the page's.

    `rest` goes into the article as it is.
    """
    if not answers:
        raise ValueError("no answers to report: ask the run something first")
    told = [(type(answer.question), answer.findings) for answer in answers]
    told += [(each, each().unmeasured()) for each in unmeasured]
    order = every_question()
    findings = [finding for _, found in sorted(told, key=lambda each: order.index(each[0])) for finding in found]
    return report.Article(
        title=title,
        question=question,
        answer=headline(findings) or _sentence([answer.short for answer in answers]),
        sections=[section for answer in answers for section in answer.sections],
        findings=findings,
        **rest,
    )


def answers_of(run: Subject) -> list[Answer]:
    """The answers that a run holds, in the order of the page."""
    return [answer for question in every_question() if (answer := question().kept(run)) is not None]


def run_article(run: Subject, *, title: str, question: str = QUESTION, notes: Sequence[str] = ()) -> report.Article:
    """All that a run holds: of pruning runs at least the evaluation and the core; answers about another core are left out.

    Raises:
        RunError: if a pruning run was not evaluated, or the first with subnetworks has no core, or one of others than these
            subnetworks.
    """
    answers = answers_of(run)
    collapsed = {each.config.sparsity: each.collapse for each in run.pruned if each.collapse}
    told = facts(pruned_evaluation(run.alive), collapsed) if run.pruned else []
    others = _others(answers, run) if run.pruned else {}
    fitting = [answer for answer in answers if answer not in others]
    return article(
        fitting,
        title=title,
        question=question,
        unmeasured=[each for each in every_question() if run.pruned and not any(isinstance(a.question, each) for a in fitting)],
        facts=told,
        warnings=tuple(text for each in run.pruned for text in each.warnings),
        notes=(*notes, *others.values()),
        provenance=_provenance(run),
        config=_settings(run, answers),
    )


def _others(answers: Sequence[Answer], run: Subject) -> dict[Answer, str]:
    """The answers about another core, or other rows, than the pruning run has now, and what to say of each."""
    core = [str(head) for head in run.core.heads]
    evaluated = options_of(run.home, "evaluation/full")
    task = cast("dict[str, Any]", evaluated)["task"] if isinstance(evaluated, dict) else None
    others: dict[Answer, str] = {}
    for answer in answers:
        if answer.question.of != "prune":
            continue
        its_core = cast("dict[str, list[str]]", answer.options.get("sets", {})).get("core", core)
        if its_core != core:
            other = f"core, {' '.join(its_core)}"
        elif task is not None and answer.options.get("task", task) != task:
            other = "task than the evaluation"
        else:
            continue
        others[answer] = f"The {answer.question.name} kept in the run is of another {other}: hc-lens ablate measures this one."
    return others


def _provenance(run: Subject) -> dict[str, object]:
    devices = {"pruned on": run.first.devices} if run.pruned and run.first.devices else {}
    return {**run.home.provenance, **devices}


def _settings(run: Subject, answers: Sequence[Answer]) -> dict[str, object]:
    """What every step was told."""
    settings: dict[str, object] = {}
    if run.pruned and run.home.file("task", "json").exists():
        task = cast("dict[str, Any]", run.home.read_json("task"))
        counted = {key: f"{sum(rows.values())} in {len(rows)} cases" for key, rows in task.items() if isinstance(rows, dict)}
        settings["task"] = task | counted
    if run.finetuned is not None:
        settings["fine-tuning"] = {**run.finetuned.spec, **precision_told(run.finetuned)}
    for each in run.alive:
        settings[f"pruning at {each.config.sparsity:g}"] = {**each.run.spec, **precision_told(each.run)}
    for answer in answers:
        asked = {name: "all" if value is None else value for name, value in answer.options.items()}
        if "task" in asked:
            settings[answer.question.name] = asked
    return settings


def headline(findings: Sequence[report.Finding]) -> str:
    """The leading answers as one sentence: how subnetworks differ, what they share, and what that core does."""
    by_key = {finding.key: finding for finding in findings}
    leading = [by_key[key] for key in _LEADING if key in by_key and by_key[key].verdict != "not measured"]
    clauses = [*spreads(findings), *(finding.short for finding in leading)]
    return _sentence(clauses) if clauses else ""


def _sentence(clauses: Sequence[str]) -> str:
    return f"{report.heading('; '.join(clauses))}."
