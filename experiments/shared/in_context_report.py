"""The report of in-context learning modulo p: what each setting came to, phases, and what is inside the chosen one."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import pandas as pd

from experiments.shared.command import versions
from experiments.shared.in_context_insides import (
    Tried,
    agreement_section,
    agreements,
    attention_section,
    circles_section,
    embedding_section,
    kept,
    queries_section,
)
from hc_lens.modular.incontext.evaluation import SETS, THRESHOLD, over_training, phases_over_training, transience
from hc_lens.modular.incontext.figures_behaviour import phase_map, shot_curves, training_curves
from hc_lens.report import Article, Section, text_table


@dataclass(frozen=True, eq=False)
class Measured:
    """All that was trained: candidates of the search, the chosen one, the phase map's runs, deeper models."""

    tried: Sequence[Tried]
    base: Tried
    phases: Sequence[Tried]
    deeper: Sequence[Tried]
    untried: Sequence[str]
    budget: float | None


def article(question: str, found: Measured) -> Article:
    """The report."""
    base = found.base
    return Article(
        title="In-context learning modulo p",
        question=question,
        answer=answer(found),
        sections=[
            settings_section(found),
            shots_section(base),
            phases_section(found),
            *([depth_section(found)] if found.deeper else []),
            agreement_section(base),
            queries_section(base),
            attention_section(base),
            circles_section(base),
            embedding_section(base),
        ],
        notes=[
            f"A set counts as solved from {THRESHOLD:.0%} accuracy after most examples: the paper gives no number.",
            "Sequences are as long as there are different examples: shorter on test examples where p is small.",
            *([f"Not tried, for the search had ended: {', '.join(found.untried)}."] if found.untried else []),
        ],
        provenance=versions(),
        config={"budget (CPU minutes)": found.budget, base.name: asdict(base.found.config)},
    )


def answer(found: Measured) -> str:
    """What the search came to, and what it took."""
    minutes = sum(run.found.seconds for run in found.tried) / 60
    base = found.base
    accuracies = ", ".join(f"{accuracy:.0%} on {of}" for of, accuracy in base.accuracies.items())
    if base.phase == "OOD generalization":
        said = f"{base.name} generalizes out of distribution after {base.step} steps, {base.found.seconds / 60:.2g} CPU minutes"
    else:
        said = (
            f"None of {len(found.tried)} settings generalizes out of distribution within {minutes:.2g} CPU minutes; the "
            f"furthest, {base.name}, is in phase {base.phase!r} after {base.step} steps"
        )
    return f"{said}: {accuracies} (chance {base.chance:.0%})."


def settings_section(found: Measured) -> Section:
    """The verdict on every setting."""
    runs = [*found.tried, *found.deeper]
    curves = {f"{run.name}: {run.phase}": over_training(run.evaluations) for run in runs}
    return Section(
        "settings",
        "What each setting came to",
        "Accuracy after most examples over training. Dashed: from where a set counts as solved; dotted: chance of the chosen "
        "setting.",
        training_curves(curves, chance=found.base.chance, threshold=THRESHOLD),
        shown=[text_table(verdicts(runs), "Settings in the order tried", percent=list(map(str, SETS)), digits=2)],
        folded=[text_table(onsets(runs), "First step in each phase")],
    )


def verdicts(runs: Sequence[Tried]) -> pd.DataFrame:
    """One row per setting: its sizes, what it took, and what it can do."""
    rows: list[dict[str, object]] = []
    for run in runs:
        config = run.found.config
        weights = sum(weight.numel() for weight in config.new_model().parameters())
        rows.append(
            {
                "setting": run.name,
                "p": config.data.p,
                "tasks": config.data.n_tasks,
                "depth": config.model.depth,
                "width": config.model.width,
                "weights": weights,
                "steps": run.step,
                "CPU minutes": run.found.seconds / 60,
                **{str(of): accuracy for of, accuracy in run.accuracies.items()},
                "phase": run.phase,
            }
        )
    return pd.DataFrame(rows)


def onsets(runs: Sequence[Tried]) -> pd.DataFrame:
    """The first checkpoint at which each setting was in each phase that it reached."""
    tables = [phases_over_training(run.evaluations).groupby("phase", sort=False)["step"].min() for run in runs]
    return pd.concat({run.name: table for run, table in zip(runs, tables, strict=True)}, names=["setting"]).reset_index()


def shots_section(base: Tried) -> Section:
    """Accuracy by shot of the chosen setting."""
    table = kept(base, "agreement", lambda: agreements(base))
    ceilings = table[table["queries"].isin(["ratio matching", "regression"])].rename(columns={"queries": "algorithm"})
    return Section(
        "shots",
        f"Accuracy by the number of examples: {base.name}",
        "Grey lines: the share of queries that each algorithm answers, on unseen tasks with train examples. What exceeds the "
        "first is not ratio matching alone.",
        shot_curves(base.last, chance=base.chance, ceilings=ceilings),
        folded=[text_table(base.last.drop(columns="step"), "Accuracy by shot", labels=3)],
    )


def phases_section(found: Measured) -> Section:
    """Phases over the number of tasks."""
    rows = [
        {
            "n_tasks": run.found.config.data.n_tasks,
            "fraction": run.found.config.data.fraction,
            "phase": run.phase,
            "steps": run.step,
            **{str(of): accuracy for of, accuracy in run.accuracies.items()},
            "accuracies": "<br>".join(f"{of}: {accuracy:.0%}" for of, accuracy in run.accuracies.items()),
        }
        for run in found.phases
    ]
    table = pd.DataFrame(rows)
    shown = text_table(table.drop(columns="accuracies"), "Phases", labels=2, percent=list(map(str, SETS)), digits=2)
    return Section(
        "phases",
        "Phases over the number of pre-training tasks",
        f"The setting of {found.base.name} with other numbers of tasks, up to {found.base.step} steps each; of "
        f"{found.base.found.config.data.p**2} tasks in all.",
        phase_map(table, rows="fraction", rows_title="share of train examples"),
        shown=[shown],
    )


def depth_section(found: Measured) -> Section:
    """Whether deeper models lose generalization again."""
    rows: list[dict[str, object]] = []
    for run in (found.base, *found.deeper):
        for of in SETS[2:]:
            peak = transience(run.evaluations, of)
            depth = run.found.config.model.depth
            lost = {"lost": peak.lost}
            rows.append({"setting": run.name, "depth": depth, "set": str(of), "steps": run.step, **peak._asdict(), **lost})
    table = text_table(pd.DataFrame(rows), "Best and last accuracy", labels=3, percent=["best", "final", "lost"])
    caption = "Accuracy on unseen tasks at its best checkpoint and at the last; curves are in the first figure."
    return Section("depth", "Is generalization lost again in deeper models?", caption, shown=[table])
