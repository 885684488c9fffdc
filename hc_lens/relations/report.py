"""What a study of relations tells of a model, as sections of a report: correlations, wrong labels, single facts, units."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from hc_lens.relations import figures
from hc_lens.relations.across import Correlation, correlation_table, correlations
from hc_lens.relations.facts import fact_states, margin_gap
from hc_lens.relations.measured import PROBES, Measured
from hc_lens.relations.recovery import recovery_shares, recovery_test
from hc_lens.relations.study import (
    CONTROLS,
    FREQUENCY,
    X,
    Y,
    error_table,
    fact_table,
    generalization_table,
    generalized,
    own_variants,
    profile_table,
    relation_table,
)
from hc_lens.report import Finding, Section, Verdict, interval_text, number_text, text_table, with_interval
from hc_lens.report.findings import sign_verdict
from hc_lens.statistics import Interval

_DRAWS = 20_000  # one relation that stands apart moves the ends of an interval of fewer by 0.1 from draw to draw

READABLE = (X, *(f"{X}, {probe}" for probe in PROBES[1:]), "control")
"""What generalization is correlated with, beside its readability: other probes', and the control task's."""


@dataclass(frozen=True, eq=False)
class Studied:
    """One model's relations.

    Attributes:
        name: of the model, for headings.
        key: the same, for anchors.
        kinds: of relations by name, which the scatter colours: how they were planted, or where they are from.
        counts: how often subjects occur in pretraining text; None: not known.
        left_out: relations that were not measured, with the reason (`name`, `reason`).
        units: effects of ablating units on probes, over some relations (`relation`, `unit`, `effect`); None: not measured.
        gates: overlap of subnetworks before and after fine-tuning; None: not measured.
        otherwise: some of the relations, fine-tuned in another way; `how` says which.
    """

    name: str
    key: str
    measured: Sequence[Measured]
    kinds: Mapping[str, str]
    counts: Mapping[str, float] | None = None
    left_out: pd.DataFrame | None = None
    units: pd.DataFrame | None = None
    gates: pd.DataFrame | None = None
    otherwise: Sequence[Measured] = ()
    how: str = ""

    @cached_property
    def table(self) -> pd.DataFrame:
        """`relation_table`, with `kind`."""
        table = relation_table(self.measured, self.counts)
        return table.assign(kind=[self.kinds[name] for name in table["relation"]])

    @cached_property
    def errors(self) -> pd.DataFrame:
        """Wrong labels mapped back to answers: `error_table`."""
        return error_table(self.measured)

    @property
    def controls(self) -> tuple[str, ...]:
        """The properties of relations that are held fixed."""
        return CONTROLS if self.counts is None else (*CONTROLS, FREQUENCY)

    @cached_property
    def partial(self) -> Sequence[Correlation]:
        """Readability and generalization: alone, given each control, given all of them; Pearson's before Spearman's."""
        return _correlations(self.table, X, Y, self.controls)

    @property
    def main(self) -> Correlation:
        """Pearson's correlation of readability and generalization."""
        return self.partial[0]

    @cached_property
    def predictors(self) -> Mapping[str, Correlation]:
        """Pearson's correlation with generalization of what varies over relations: readabilities, control task, controls."""
        names = [name for name in (*READABLE, *self.controls) if _varies(self.table[name])]
        return {name: self.main if name == X else _correlations(self.table, name, Y)[0] for name in names}


def sections(found: Studied) -> list[Section]:
    """The figures and tables of one model, in the order of the argument."""
    return [
        *relation_sections(found),
        *robustness_sections(found),
        *([otherwise_section(found)] if found.otherwise else []),
        profile_section(found),
        *error_sections(found),
        *inside_sections(found),
    ]


def relation_sections(found: Studied) -> list[Section]:
    """The main figure, and what is left of it when other properties are held fixed."""
    config = found.measured[0].config
    percent = ["reached", "recall", "accuracy"]
    columns = ["relation", "kind", X, Y, "low", "high", "control", "accuracy", "recall", "reached", "layer", "answers"]
    shown = with_interval(found.table[[*columns, "training subjects"]].sort_values(X, ascending=False), Y, digits=2)
    left_out = [] if found.left_out is None or found.left_out.empty else [found.left_out]
    return [
        Section(
            f"{found.key}-relations",
            f"{found.name}: readability before fine-tuning, generalization after it",
            f"A mark is a relation: held-out accuracy above the majority rate (1 is perfect, 0 is chance). Whiskers: 95 % over "
            f"{len(config.assignments)} label assignments x {len(config.seeds)} seeds.",
            figures.readability_scatter(found.table, str(found.main)),
            folded=[
                text_table(shown, "Every relation", labels=2, percent=percent, digits=2),
                *(text_table(table, "Relations left out", labels=2) for table in left_out),
            ],
        ),
        Section(
            f"{found.key}-partial",
            f"{found.name}: the correlation with other properties held fixed",
            "Partial correlations, singly and jointly; BCa bootstrap intervals over relations; p by permutation. "
            "Variance inflation: 1 where the properties say nothing of readability.",
            shown=[correlation_table(found.partial, f"Readability and generalization ({found.name})")],
        ),
    ]


def robustness_sections(found: Studied) -> list[Section]:
    """Other labels, other probes, and what should not predict anything."""
    rows = [
        {"label": f"{name} alone" if name in found.controls else name, **_bounds(each)}
        for name, each in found.predictors.items()
    ]
    others = found.table.dropna(subset=["other labels"])
    if len(others) > 3 and _varies(others["other labels"]):
        other = _correlations(others, X, "other labels")[0]
        rows.insert(1, {"label": f"{X}, with labels of other categories", **_bounds(other)})
    by_category = generalization_table(found.measured).groupby("category", sort=False)
    categories = by_category.agg(
        relations=("relation", "nunique"), accuracy=("accuracy", "mean"), above=("above", "mean"), reached=("reached", "mean")
    )
    return [
        Section(
            f"{found.key}-robust",
            f"{found.name}: other labels, other probes, and what else predicts generalization",
            "Pearson's correlation with generalization over relations, 95 % intervals. Control: the same probe for answers "
            "shuffled over the subjects.",
            figures.correlation_dots(pd.DataFrame(rows)),
            folded=[
                text_table(
                    categories.reset_index(), "Generalization by category of labels", percent=["accuracy", "reached"], digits=2
                )
            ],
        )
    ]


def otherwise_section(found: Studied) -> Section:
    """Whether it depends on how the model was fine-tuned: some of the relations again, beside what they gave before."""
    table = relation_table(found.otherwise)
    before = {each.relation.name: each for each in found.measured}
    same = [
        np.mean([generalized(before[each.relation.name], variant).above for variant in own_variants(each)])
        for each in found.otherwise
    ]
    shown = table[["relation", X, Y, "accuracy", "reached"]].assign(**{"as in the study": same})
    again = _correlations(table, X, Y)[0]
    return Section(
        f"{found.key}-otherwise",
        f"{found.name}: fine-tuned otherwise, {found.how}",
        f"{len(table)} of the relations, on the first split and labels alone; on these the study's own way of fine-tuning "
        f"gives {_correlations(table.assign(same=same), X, 'same')[0]}.",
        figures.readability_scatter(table.drop(columns=["low", "high"]), str(again)),
        shown=[
            text_table(shown, "Generalization, fine-tuned in both ways", labels=1, percent=["accuracy", "reached"], digits=2)
        ],
    )


def profile_section(found: Studied) -> Section:
    """Where relations are readable."""
    return Section(
        f"{found.key}-layers",
        f"{found.name}: in which layers relations are readable",
        "Held-out accuracy of the probe above the majority rate; rings: the layers that inner cross-validation chose on the "
        "training subjects.",
        figures.layer_profile(profile_table(found.measured)),
    )


def error_sections(found: Studied) -> list[Section]:
    """What wrong labels say, and which facts carry over."""
    parts: list[Section] = []
    if len(found.errors):
        shares, test = recovery_shares(found.errors), recovery_test(found.errors)
        parts.append(
            Section(
                f"{found.key}-recovery",
                f"{found.name}: wrong labels, mapped back to answers",
                "How often the answer that a wrong label stands for is among the k best of the linear probe, or of the "
                "pretrained model's few-shot answers, the true answer left out of both.",
                figures.recovery_bars(shares),
                shown=[
                    text_table(
                        with_interval(test, "difference", percent=True), "Probe minus model, paired (McNemar's p)", labels=1
                    )
                ],
            )
        )
    states = fact_states(fact_table(found.measured))
    parts.append(
        Section(
            f"{found.key}-facts",
            f"{found.name}: active and inert facts, by the probe's margin",
            _gap_text(states),
            figures.margin_scatter(states),
            folded=[text_table(states, "Every fact that was held out", labels=2, percent=["recalled", "right"])],
        )
    )
    return parts


def inside_sections(found: Studied) -> list[Section]:
    """Which units carry readable relations, and whether gates find the same ones before and after fine-tuning."""
    parts: list[Section] = []
    if found.units is not None:
        n = found.units["relation"].nunique()
        parts.append(
            Section(
                f"{found.key}-units",
                f"{found.name}: which heads and MLPs carry the readable relation",
                "Accuracy of the probe on held-out facts that is lost when a unit's activation at the subject becomes its "
                f"mean over the training facts; mean of {n} relations.",
                figures.unit_effects(found.units),
                folded=[text_table(found.units, "Every unit", labels=2, percent=["effect"])],
            )
        )
    if found.gates is not None:
        columns = ["relation", *(name for name in found.gates if name != "relation")]
        parts.append(
            Section(
                f"{found.key}-gates",
                f"{found.name}: gates pruned for the new relation, before and after fine-tuning",
                "The model as a classifier of the new labels, pruned with the tools of the heuristic core. Before fine-tuning "
                "it was never taught them: what its gates share with those after it, any answer takes. Chance: heads "
                "shuffled within their layers.",
                shown=[text_table(found.gates[columns], "Heads kept before and after, and shared", labels=2)],
            )
        )
    return parts


def findings(found: Studied) -> list[Finding]:
    """The claims about one model, each judged by its interval."""
    key, name = found.key, found.name
    judged = [_predicts(found), _partial(found)]
    if (control := found.predictors.get("control")) is not None:
        judged.append(
            Finding(
                f"{key}-control",
                f"{name}: does the control task predict generalization, too?",
                sign_verdict(Interval(control.low, control.high)),
                f"control task: {control}",
                f"Control task against generalization: {control}; its mean accuracy above the majority rate is "
                f"{number_text(float(found.table['control'].mean()), 2)}.",
                "Yes if the interval lies above 0, no if below, undecided if it includes 0.",
            )
        )
    if len(found.errors):
        judged.append(_recovery(found))
    return judged


def told(judged: Sequence[Finding]) -> str:
    """The findings in short, one a line: the answer of a report."""
    return "\n".join(f"{each.short[0].upper()}{each.short[1:]}." for each in judged)


def _predicts(found: Studied) -> Finding:
    pearson, spearman = found.partial[:2]
    return Finding(
        f"{found.key}-predicts",
        f"{found.name}: does readability before fine-tuning predict generalization after it?",
        sign_verdict(Interval(pearson.low, pearson.high)),
        f"{found.name}: {pearson}, {spearman} over {pearson.n} relations",
        f"Over {pearson.n} relations {pearson} (Pearson) and {spearman} (Spearman).",
        "Yes if the interval of Pearson's r lies above 0, no if below, undecided if it includes 0.",
    )


def _partial(found: Studied) -> Finding:
    joint = found.partial[-2]
    verdict: Verdict = "undecided" if np.isnan(joint.r) else sign_verdict(Interval(joint.low, joint.high))
    return Finding(
        f"{found.key}-partial",
        f"{found.name}: still with {', '.join(found.controls)} held fixed?",
        verdict,
        f"jointly given {joint.given}: {joint}",
        f"Given {joint.given} at once: {joint} ({joint.df} degrees of freedom, variance inflation {joint.vif:.1f}).",
        "Yes if the interval lies above 0, no if below, undecided if it includes 0.",
    )


def _recovery(found: Studied) -> Finding:
    first = recovery_test(found.errors).iloc[0]
    difference, low, high = (100 * float(first[name]) for name in ("difference", "low", "high"))
    points = f"{interval_text(difference, low, high, 1)} points"
    return Finding(
        f"{found.key}-recovery",
        f"{found.name}: are wrong labels more often the probe's top answer than the pretrained model's own?",
        sign_verdict(Interval(float(first["low"]), float(first["high"]))),
        f"wrong labels: probe minus model {points}",
        f"Probe minus model, top {first['k']:.0f}: {points}, {first['errors']:.0f} wrong labels of {first['relations']:.0f} "
        f"relations; McNemar's p = {first['p']:.2g}, which takes errors as independent.",
        "Yes if the bootstrap interval over relations lies above 0, no if below, undecided if it includes 0.",
    )


def _gap_text(states: pd.DataFrame) -> str:
    counts = states["state"].value_counts()
    text = "Facts held out: " + ", ".join(f"{count} {state}" for state, count in counts.items()) + "."
    try:
        gap = margin_gap(states)
    except ValueError:  # no relation has both
        return text
    larger = gap.larger
    return (
        f"{text} Within relations an active fact has a larger margin than an inert one in {larger.value:.0%} of pairs "
        f"[{larger.low:.0%}, {larger.high:.0%}] (chance 50 %)."
    )


def _bounds(found: Correlation) -> dict[str, float]:
    return {"r": found.r, "low": found.low, "high": found.high}


def _varies(column: pd.Series) -> bool:
    return float(np.ptp(column.to_numpy(dtype=np.float64))) > 0


def _correlations(table: pd.DataFrame, x: str, y: str, controls: Sequence[str] = ()) -> list[Correlation]:
    return correlations(table, x, y, controls, n_boot=_DRAWS)
