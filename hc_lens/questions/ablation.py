"""What do heads do in the full model: what does ablating each cost, and do several cost more together than one by one?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

from hc_lens import analysis, figures, report
from hc_lens.limits import Natural
from hc_lens.prose import MINUS, counted, in_points, listed, points
from hc_lens.questions.ablated import kept_ablation, single_ablations
from hc_lens.questions.heads import Heads, heads_of
from hc_lens.questions.question import Answer, Question
from hc_lens.sample import Sample
from hc_lens.units import Head, parse

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.questions.subject import Subject

_PANELS = 8  # ablation panels: two rows of four
_SCALES = {"accuracy": "accuracy", "margin": "the margin"}
_UNITS = {"accuracy": (" points", 100, 1), "margin": (" nats", 1, 2)}


@dataclass(frozen=True)
class Ablation(Question):
    """Mean-ablate every head of the full model alone, and the core together: what it costs on ID and OOD cases."""

    heads: Heads = ()
    """A set to ablate together, as L4.H0 L5.H2, in place of the core."""
    controls: Natural = 20
    """Random sets of as many heads from the same layers, for comparison."""
    top: int | None = None
    """Ablates a second set together: so many of the heads, those that cost most out of domain one by one."""

    name: ClassVar[str] = "ablation"
    tables: ClassVar[tuple[str, ...]] = ("additivity", "effects")
    columns: ClassVar[Mapping[str, Sequence[str]]] = {
        "effects": ("group", "case", "case_group", "scale", "effect", "low", "high")
    }
    sample: ClassVar[Sample] = Sample(500)

    def ask(self, run: Subject, sample: Sample | None = None) -> Answer:
        sample = run.settled(self.sample if sample is None else sample)
        answer = super().ask(run, sample)
        single_ablations(run, sample)  # which the page reads, too: made again where somebody deleted them
        return _with_mean_of_others(answer, run)

    def kept(self, run: Subject) -> Answer | None:
        found = super().kept(run)
        return None if found is None else _with_mean_of_others(found, run)

    def options(self, run: Subject, sample: Sample) -> dict[str, object]:
        sets = {name: [str(head) for head in heads] for name, heads in self._sets(run, sample).items()}
        return super().options(run, sample) | {"sets": sets, "controls": self.controls}

    def _sets(self, run: Subject, sample: Sample) -> dict[str, tuple[Head, ...]]:
        heads = heads_of(run, self.heads)
        sets = {"chosen heads" if self.heads else "core": heads}
        if self.top is not None:
            sets[f"costliest {self.top}"] = costliest(single_ablations(run, sample).table(), heads, self.top)
        return sets

    def measure(self, run: Subject, sample: Sample) -> Mapping[str, pd.DataFrame]:
        singles = single_ablations(run, sample)
        joint = {name: heads for name, heads in self._sets(run, sample).items() if len(heads) > 1}
        groups = {**singles.groups, **joint}
        found = analysis.ablate(run.model, run.task, run.means, groups, sample, controls=self.controls, known=singles)
        return {"additivity": found.super_additivity(seed=sample.seed), "effects": found.table(seed=sample.seed)}

    @classmethod
    def of_objects(cls, ablation: analysis.Ablation, heads: Sequence[Head]) -> Answer:
        """The answer from an ablation in memory, and the heads that it is about."""
        others = any(len(units) == 1 and units[0] not in heads for units in ablation.groups.values())
        tables = {"effects": ablation.table(heads if others else None), "additivity": ablation.super_additivity()}
        return Answer(cls(tuple(heads)), tables, {"sets": {"core": [str(head) for head in heads]}})

    def short(self, answer: Answer) -> str:
        (name, heads), *_ = answer.options["sets"].items()
        group = name if len(heads) > 1 else heads[0]
        effects = _on_accuracy(answer)
        lost = effects[effects["group"] == group].groupby("case_group")["effect"].mean()
        told = ", ".join(f"{100 * value:.1f} points {label}" for label, value in lost.items())
        return f"ablating {'the ' if len(heads) > 1 else ''}{group} ({', '.join(heads)}) costs {told}"

    def unmeasured(self) -> list[report.Finding]:
        import pandas as pd

        effects = pd.DataFrame(columns=list(self.columns["effects"]))
        tables = {"effects": effects, "additivity": pd.DataFrame({"scale": []})}
        return self.findings(Answer(self, tables, {"sets": {"core": []}}))

    def findings(self, answer: Answer) -> list[report.Finding]:
        return [
            core_hurts_ood(answer),
            core_against_others(answer),
            super_additive(answer, "accuracy"),
            super_additive(answer, "margin"),
        ]

    def sections(self, answer: Answer) -> list[report.Section]:
        found = {finding.key: finding for finding in answer.findings}
        return [_effects(answer, found["core-ood"]), *_additivity(answer, found)]


def costliest(singles: pd.DataFrame, heads: Sequence[Head], top: int) -> tuple[Head, ...]:
    """The `top` heads whose single ablation lowers the margin most, on average over out-of-domain cases, if there are any."""
    there = "OOD" if (singles["case_group"] == "OOD").any() else "ID"
    chosen = singles[(singles["case_group"] == there) & (singles["scale"] == "margin")]
    loss = chosen.groupby("group")["effect"].mean()
    return tuple(sorted(heads, key=lambda head: -float(loss[str(head)]))[:top])


def _with_mean_of_others(answer: Answer, run: Subject) -> Answer:
    """The answer with the effects of all other heads as a mean, with its own bootstrap interval, where their rows are kept."""
    import pandas as pd

    asked = answer.options
    rows = {name: value for name, value in asked.items() if name not in ("sets", "controls")}
    heads, effects = _heads(answer), answer["effects"]
    singles = kept_ablation(run.home, "singles", rows)
    if singles is None or len(heads) == len(singles.groups):
        return answer
    table = singles.table(heads, seed=asked["seed"])
    others = table[table["group"].str.startswith("mean of")]
    return Answer(answer.question, {**answer.tables, "effects": pd.concat([effects, others], ignore_index=True)}, asked)


def _heads(answer: Answer) -> tuple[Head, ...]:
    """The heads that the ablation is about."""
    first = next(iter(cast("dict[str, list[str]]", answer.options["sets"]).values()))
    return tuple(cast(Head, parse(name)) for name in first)


def _on_accuracy(answer: Answer) -> pd.DataFrame:
    effects = answer["effects"]
    return effects[effects["scale"] == "accuracy"].drop_duplicates(["group", "case"])


def head_losses(answer: Answer) -> pd.DataFrame:
    """Mean accuracy lost to each single head over the cases of a group: index head name, columns `ID`, `OOD`, `core`."""
    effects = _on_accuracy(answer)
    single = effects[effects["group"].map(_is_head).astype(bool)]
    losses = single.pivot_table(index="group", columns="case_group", values="effect", aggfunc="mean", sort=False)
    core = {str(head) for head in _heads(answer)}
    return losses.reindex(columns=["ID", "OOD"]).assign(core=[name in core for name in losses.index])


def _is_head(name: str) -> bool:
    """Whether the name of an ablated group is that of a single head."""
    try:
        return isinstance(parse(name), Head)
    except ValueError:
        return False


def core_hurts_ood(answer: Answer) -> report.Finding:
    """Whether ablating single core heads costs more out of domain than in-domain."""
    key, question = "core-ood", "Does ablating a core head hurt out of domain more than in-domain?"
    rule = (
        "Accuracy lost when one core head is mean-ablated from the full model, averaged over the out-of-domain cases, minus "
        "the same in-domain; 95 % bootstrap interval of its mean over core heads. Yes if it lies above 0, no if below, "
        "undecided if it includes 0."
    )
    losses = head_losses(answer)
    held = losses[losses["core"].astype(bool)]
    if held.empty:
        return report.not_measured(key, question, "core heads were not ablated", "No single core head was ablated in this run.")
    difference = report.values(held["OOD"] - held["ID"])
    interval = report.mean_interval(difference)
    verdict = report.sign_verdict(interval)
    short = {
        "yes": "ablating a core head hurts out of domain more than in-domain",
        "no": "ablating a core head hurts in-domain more than out of domain",
    }.get(verdict, "it is undecided whether a core head matters more out of domain than in-domain")
    worst = str(held["OOD"].idxmax())
    sentence = (
        f"Without one core head, the full model loses {points(held['OOD'].mean())} out of domain and "
        f"{points(held['ID'].mean())} in-domain on average over {counted(len(held), 'head')}: a difference of "
        f"{points(float(difference.mean()))} {in_points(interval)}. The most costly is {worst} "
        f"({points(held['OOD'].max())} out of domain)."
    )
    return report.Finding(key, question, verdict, short, sentence, rule)


def core_against_others(answer: Answer) -> report.Finding:
    """Whether ablating single core heads costs more out of domain than ablating other heads."""
    key, question = "core-others", "Does ablating a core head hurt more than ablating another head?"
    rule = (
        "Accuracy lost out of domain to a single head, mean over core heads minus mean over the other heads ablated; 95 % "
        "bootstrap interval over heads. Yes if it lies above 0, no if below, undecided if it includes 0."
    )
    losses = head_losses(answer)
    is_core = losses["core"].astype(bool)
    held, others = losses[is_core], losses[~is_core]
    if held.empty or others.empty:
        why = "Core heads and other heads were not both ablated one by one in this run."
        return report.not_measured(key, question, "core heads were not compared with other heads", why)
    interval = report.difference_interval(report.values(held["OOD"]), report.values(others["OOD"]))
    verdict = report.sign_verdict(interval)
    short = {
        "yes": "ablating a core head hurts more than ablating another head",
        "no": "ablating a core head hurts less than ablating another head",
    }.get(verdict, "it is undecided whether a core head matters more than another head")
    sentence = (
        f"Out of domain, a core head costs {points(held['OOD'].mean())} on average ({counted(len(held), 'head')}), another "
        f"head {points(others['OOD'].mean())} ({counted(len(others), 'head')}): a difference of "
        f"{points(held['OOD'].mean() - others['OOD'].mean())} {in_points(interval)}. In-domain: {points(held['ID'].mean())} "
        f"and {points(others['ID'].mean())}."
    )
    return report.Finding(key, question, verdict, short, sentence, rule)


def super_additive(answer: Answer, scale: str) -> report.Finding:
    """Whether ablating core heads together costs more out of domain than the sum of ablating them one by one."""
    key, on = f"additive-{scale}", _SCALES[scale]
    question = f"On {on}, does ablating core heads together cost more than one by one?"
    rule = (
        "Excess: joint loss minus summed single losses, with its 95 % paired bootstrap interval, per set and out-of-domain "
        "case. Yes if the interval lies above 0 in more than half of the cases that the floor does not limit, no if below 0 in "
        "more than half, undecided otherwise. "
        + (
            "The margin is the log-odds of the right answer; it has no floor."
            if scale == "margin"
            else "Floor-limited: single losses add up to more than there was to lose, or the joint accuracy is at the floor."
        )
    )
    table = answer["additivity"]
    if table.empty or not (table["scale"] == scale).any():
        return report.not_measured(
            key, question, f"additivity on {on} was not measured", "No set of heads was ablated jointly in this run."
        )
    rows = table[(table["scale"] == scale) & (table["case_group"] == "OOD")]
    limited = rows["floor_limited"].astype(bool)
    free = rows[~limited]
    above, below = free[free["low"] > 0], free[free["high"] < 0]
    verdict: report.Verdict = "yes" if len(above) > len(free) / 2 else "no" if len(below) > len(free) / 2 else "undecided"
    short = {
        "yes": f"core heads together cost more than the sum of their parts on {on}",
        "no": f"core heads together cost less than the sum of their parts on {on}",
    }.get(verdict, f"it is undecided whether core heads together cost more than the sum of their parts on {on}")
    sentence = f"{_count(above, free, 'super-additive', scale)}, {_count(below, free, 'sub-additive', scale)}"
    sentence += (
        f"; for the other {unclear} the interval includes 0." if (unclear := len(free) - len(above) - len(below)) else "."
    )
    sentence += f" {_controls(rows, above)}"
    if limited.any():
        sentence += f" Floor-limited and not counted: {listed(_labels(rows[limited]), most=4)}."
    return report.Finding(key, question, verdict, short, sentence[0].upper() + sentence[1:], rule)


def _count(rows: pd.DataFrame, free: pd.DataFrame, what: str, scale: str) -> str:
    """`2 of 4 results are super-additive`, with the strongest and its interval."""
    if rows.empty:
        return f"none is {what}" if len(free) else f"no result is left to be {what}"
    place = int(rows["excess"].abs().to_numpy().argmax())
    unit, factor, digits = _UNITS[scale]
    row, label = rows.iloc[place], _labels(rows)[place]
    excess, low, high = (f"{factor * row[name]:.{digits}f}".replace("-", MINUS) for name in ("excess", "low", "high"))
    return (
        f"{len(rows)} of {counted(len(free), 'result')} {'is' if len(rows) == 1 else 'are'} {what} (most on {label}: "
        f"{excess}{unit}, 95 % interval {low} to {high})"
    )


def _labels(rows: pd.DataFrame) -> list[str]:
    several = rows["set"].nunique() > 1
    return [f"{case} ({name})" if several else str(case) for case, name in zip(rows["case"], rows["set"], strict=True)]


def _controls(rows: pd.DataFrame, above: pd.DataFrame) -> str:
    """How the super-additive results stand against random sets of the same size and layers."""
    if not rows["control_high"].notna().any():
        return "There was no control with random sets."
    controlled = above[above["control_high"].notna()]
    if controlled.empty:
        return "So there is nothing to hold against layer-matched random sets."
    beyond = int((controlled["excess"] > controlled["control_high"]).sum())
    return f"Of the super-additive ones, {beyond} of {len(controlled)} lie beyond 97.5 % of layer-matched random sets."


def _effects(answer: Answer, found: report.Finding) -> report.Section:
    effects = shown_effects(answer)
    caption = (
        "Accuracy that the full model loses when units are mean-ablated: single core heads, sets ablated together, and the "
        "average of the other heads, one by one. In-domain panels are dark; whiskers are 95 % bootstrap intervals over rows."
    )
    drawn, left_out = _most_affected(effects)
    if left_out:
        caption += f" Shown are the cases that lose most; the table has the other {left_out}."
    losses = head_losses(answer)
    held = losses[losses["core"].astype(bool)].drop(columns="core").rename_axis("head").reset_index()
    held = held.rename(columns={"ID": "ID lost (points)", "OOD": "OOD lost (points)"})
    width = 250 * drawn["case"].nunique()
    return report.Section(
        "ablation",
        found.heading,
        caption,
        figures.ablation_bars(drawn),
        shown=(report.text_table(held, "What each head costs alone", percent=list(held.columns[1:])),),
        folded=(_effect_table(effects),),
        width=(min(860, width + 120), min(1100, width + 150)),
    )


def shown_effects(answer: Answer) -> pd.DataFrame:
    """The effects worth a bar: single core heads and sets as they are, all other single heads as their mean.

    That mean has an interval only where the effects hold one, as `Ablation.table(core)` gives it.
    """
    import pandas as pd

    effects = _on_accuracy(answer)
    core = {str(head) for head in _heads(answer)}
    other = effects["group"].map(lambda name: _is_head(str(name)) and name not in core).astype(bool)
    shown, others = effects[~other], effects[other]
    if others.empty or shown["group"].str.startswith("mean of").any():
        return shown
    by_case = others.groupby("case", sort=False)
    mean = pd.DataFrame(
        {
            "group": f"mean of {others['group'].nunique()} other heads",
            "case": list(by_case.groups),
            "effect": by_case["effect"].mean().to_numpy(),
            "low": float("nan"),
            "high": float("nan"),
            "case_group": by_case["case_group"].first().to_numpy(),
        }
    )
    return pd.concat([shown, mean], ignore_index=True)


def _most_affected(effects: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """The rows of the cases for which there is a panel, in-domain ones first to stay, and how many cases are left out."""
    losses = effects.groupby("case", sort=False)["effect"].mean()
    inside = effects.loc[effects["case_group"] == "ID", "case"].unique()
    outside = losses.drop(inside).nlargest(max(1, _PANELS - len(inside))).index
    kept = effects["case"].isin([*inside, *outside])
    return effects[kept], len(losses) - len(inside) - len(outside)


def _effect_table(effects: pd.DataFrame) -> report.TextTable:
    """One row per case, one column per group of units ablated: points of accuracy lost, with their 95 % interval."""
    cells = report.with_interval(effects, "effect", percent=True)
    wide = cells.pivot_table(
        index=["case_group", "case"], columns="group", values="effect (%) [95 %]", aggfunc="first", sort=False
    )
    wide = wide.reset_index().rename(columns={"case_group": "group"})
    return report.text_table(wide, "Accuracy lost to ablation (points [95 %])", labels=2)


def _additivity(answer: Answer, found: Mapping[str, report.Finding]) -> list[report.Section]:
    table = answer["additivity"]
    if table.empty:
        return []
    scales = set(table["scale"])
    return [
        report.Section(
            "additivity",
            found["additive-margin" if "margin" in scales else "additive-accuracy"].heading,
            "Loss when heads are ablated together, minus the sum of their single losses. Right of zero: super-additive. Grey: "
            "random sets of as many heads from the same layers. Hollow: limited by the floor, so unable to show it.",
            figures.additivity(table),
            folded=(_additivity_table(table),),
            width=(320 + 160 * len(scales), 250 + 430 * len(scales)),
        )
    ]


def _additivity_table(table: pd.DataFrame) -> report.TextTable:
    """One row per set, scale and case: joint and summed loss, their difference with interval, and the control."""
    numbers = ["joint", "summed", "excess", "low", "high", "control_low", "control_high"]
    points_of = table["scale"].map({"accuracy": 100.0}).fillna(1.0)
    shown = table[["set", "scale", "case", *numbers, "floor_limited"]].assign(
        **{name: table[name] * points_of for name in numbers}
    )
    shown = report.with_interval(shown, "excess", digits=2)
    title = "Joint and summed losses (accuracy in points, margin in nats)"
    return report.text_table(shown, title, labels=3, digits=2)
