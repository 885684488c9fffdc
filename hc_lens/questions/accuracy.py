"""How accurate are the subnetworks, in-domain and out of domain, and do they agree? Each seed's table is kept in its run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hc_lens import figures, report
from hc_lens.cache import options_of
from hc_lens.prose import counted, in_points, percent, points, sparsity
from hc_lens.pruning.evaluation import evaluate_into, pruned_evaluation
from hc_lens.questions.question import Answer, Question

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from hc_lens.questions.subject import Subject
    from hc_lens.sample import Sample
    from hc_lens.statistics import Interval

_FEW_CASES = 12  # with more, the table by case is folded away under its figure
_TWICE = 2.0


@dataclass(frozen=True)
class Accuracy(Question):
    """Score the full model and its subnetworks on every ID and OOD case."""

    name: ClassVar[str] = "evaluation"
    tables: ClassVar[tuple[str, ...]] = ("evaluation",)
    columns: ClassVar[Mapping[str, Sequence[str]]] = {
        "evaluation": ("subnetwork", "seed", "sparsity", "case", "group", "accuracy", "low", "high")
    }

    def measure(self, run: Subject, sample: Sample) -> Mapping[str, pd.DataFrame]:
        for each in run.alive:
            evaluate_into(each, run.model, run.task, sample)
        return {"evaluation": pruned_evaluation(run.alive)}

    def ask(self, run: Subject, sample: Sample | None = None) -> Answer:
        sample = run.settled(self.sample if sample is None else sample)
        return Answer(self, self.measure(run, sample), self.options(run, sample))

    def kept(self, run: Subject) -> Answer | None:
        if not run.pruned or not run.home.file("evaluation/full", "parquet").exists():
            return None
        options = options_of(run.home, "evaluation/full")
        return Answer(self, {"evaluation": pruned_evaluation(run.alive)}, options if isinstance(options, dict) else {})

    @classmethod
    def of_table(cls, evaluation: pd.DataFrame) -> Answer:
        """The answer from an evaluation table in memory, as `hc.evaluate` gives it.

        Raises:
            ValueError: for a table of the full model only, or that lacks a column.
        """
        if not (evaluation["subnetwork"] != "full").any():
            raise ValueError("the evaluation table holds the full model only; it needs at least one subnetwork")
        return Answer(cls(), {"evaluation": evaluation}, {})

    def short(self, answer: Answer) -> str:
        evaluation = answer["evaluation"]
        return f"subnetworks: {group_means(evaluation[evaluation['subnetwork'] != 'full'])}; {_widest(evaluation)}"

    def findings(self, answer: Answer) -> list[report.Finding]:
        return [*(_spread(answer["evaluation"], share) for share in by_sparsity(answer["evaluation"])), _sparser(answer)]

    def sections(self, answer: Answer) -> list[report.Section]:
        evaluation = answer["evaluation"]
        cases, runs = _by_case(evaluation), _by_run(evaluation)
        few = len(groups_of(evaluation)) <= _FEW_CASES
        return [
            report.Section(
                "subnetworks",
                report.heading("; ".join(spreads(answer.findings))),
                "Each mark is one subnetwork, pruned with its own seed from the same full model (black bar). Where marks lie "
                "together, the seed does not matter; where they scatter, subnetworks of one model generalize differently.",
                figures.strip(evaluation),
                shown=(cases,) if few else (),
                folded=(runs,) if few else (cases, runs),
                width=(560, 1100),
            )
        ]


def spreads(findings: Sequence[report.Finding]) -> list[str]:
    """How subnetworks differ: one clause if all sparsities tell the same, else one for each."""
    found = [finding for finding in findings if finding.key.startswith("spread-")]
    if len({finding.verdict for finding in found}) == 1:
        return [found[0].short.rpartition(" at ")[0] or found[0].short]
    return [finding.short for finding in found]


def group_means(evaluation: pd.DataFrame) -> str:
    """Mean accuracy in-domain and out of domain, as text."""
    named = {"ID": "in-domain", "OOD": "out-of-domain"}
    means = evaluation.groupby("group")["accuracy"].mean()
    return ", ".join(f"{name} accuracy {means[group]:.3f}" for group, name in named.items() if group in means.index)


def _widest(evaluation: pd.DataFrame) -> str:
    """The out-of-domain case on which the subnetworks differ most."""
    pruned = evaluation[(evaluation["subnetwork"] != "full") & (evaluation["group"] == "OOD")]
    if pruned.empty:
        return "the task has no out-of-domain case"
    cases = pruned.groupby("case", sort=False)["accuracy"].agg(["min", "max"])
    widest = str((cases["max"] - cases["min"]).idxmax())
    return f"most apart on {widest}, from {cases.loc[widest, 'min']:.3f} to {cases.loc[widest, 'max']:.3f}"


def groups_of(evaluation: pd.DataFrame) -> dict[str, str]:
    """ "ID" or "OOD" for each case, in the order of the evaluation."""
    return {str(case): str(group) for case, group in zip(evaluation["case"], evaluation["group"], strict=True)}


def by_sparsity(evaluation: pd.DataFrame) -> dict[float, pd.DataFrame]:
    """The subnetworks' rows at each sparsity (asked for, where that is recorded), densest first."""
    pruned = evaluation[evaluation["subnetwork"] != "full"]
    by = "target" if "target" in pruned.columns else "sparsity"
    return {float(s): pruned[pruned[by] == s] for s in sorted(pruned[by].unique())}


def facts(evaluation: pd.DataFrame, collapsed: Mapping[float, str]) -> list[tuple[str, str]]:
    """What was run, as counted in the table; `collapsed` says, by sparsity, which seeds gave no subnetwork."""
    full = evaluation[evaluation["subnetwork"] == "full"]
    rows = full.groupby("group")["n"].sum() if "n" in full.columns else {}
    its = list(groups_of(evaluation).values())
    cases = [(its.count(group), where, rows.get(group)) for group, where in (("ID", "in-domain"), ("OOD", "out of domain"))]
    told = [f"{number} {where}" + ("" if n is None else f" ({int(n):,} rows)") for number, where, n in cases]
    found = [("Cases", ", ".join(told))]
    subnetworks = by_sparsity(evaluation)
    for share, runs in subnetworks.items():
        seeds = sorted({int(seed) for seed in runs["seed"].dropna()})
        named = f", {_seeds(seeds)}" if seeds else ""
        lost = f"; {collapsed[share]}" if share in collapsed else ""
        found.append((f"{100 * share:.0f} % sparsity", f"{runs['subnetwork'].nunique()} subnetworks{named}{lost}"))
    empty = {share: told for share, told in collapsed.items() if share not in subnetworks}
    return [*found, *((f"{100 * share:.0f} % sparsity", f"no subnetworks; {told}") for share, told in empty.items())]


def _seeds(seeds: Sequence[int]) -> str:
    if len(seeds) > 2 and seeds[-1] - seeds[0] == len(seeds) - 1:
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"


def _spread(evaluation: pd.DataFrame, share: float) -> report.Finding:
    """Whether the subnetworks of one sparsity agree in-domain and differ out of domain."""
    key, question = f"spread-{share:g}", f"At {sparsity(share)}, do subnetworks agree in-domain and differ out of domain?"
    rule = (
        "Spread: standard deviation over seeds, averaged over the group's cases, less the binomial noise of a case's rows "
        "(which understates it, as all subnetworks see the same rows). Yes if the out-of-domain spread is at least twice the "
        "in-domain one and the 95 % bootstrap interval of their difference, over seeds, lies above 0; undecided if it "
        "includes 0; no otherwise."
    )
    import numpy as np
    import pandas as pd

    from hc_lens.analysis import spread_over_seeds
    from hc_lens.statistics import Interval, bootstrap_interval

    rows = by_sparsity(evaluation)[share]
    table = rows.pivot_table(index="subnetwork", columns="case", values="accuracy").dropna()
    n = rows.groupby("case")["n"].first() if "n" in rows.columns else pd.Series(np.inf, index=table.columns)
    groups = {
        g: [case for case, its in groups_of(evaluation).items() if its == g and case in table.columns] for g in ("ID", "OOD")
    }
    if not groups["ID"] or not groups["OOD"]:
        return report.not_measured(
            key, question, "in-domain and out-of-domain cases cannot be compared", "One of the two groups is empty."
        )
    cases = [*groups["ID"], *groups["OOD"]]
    accuracies = table[cases].to_numpy(dtype=np.float64)
    rows_of = n.loc[cases].to_numpy(dtype=np.float64)
    split = len(groups["ID"])

    def excess(sample: np.ndarray) -> np.ndarray:
        spreads = spread_over_seeds(sample, rows_of)
        return spreads[:, split:].mean(axis=1) - spreads[:, :split].mean(axis=1)

    spreads = spread_over_seeds(accuracies, rows_of) if len(table) >= 2 else np.zeros(len(cases))
    enough = len(table) >= report.ENOUGH
    interval = bootstrap_interval(accuracies, excess) if enough else Interval(-np.inf, np.inf)
    inside, outside = float(spreads[:split].mean()), float(spreads[split:].mean())
    # An interval around 0 leaves it open; a clear one below a factor of two is no "agree here, differ there".
    sign = report.sign_verdict(interval)
    verdict: report.Verdict = "no" if sign == "yes" and outside < _TWICE * inside else sign
    short = {
        "yes": f"subnetworks that agree in-domain differ out of domain at {sparsity(share)}",
        "no": f"subnetworks do not differ much more out of domain than in-domain at {sparsity(share)}",
    }.get(verdict, f"it is undecided whether subnetworks differ more out of domain than in-domain at {sparsity(share)}")
    return report.Finding(
        key, question, verdict, short, _spread_sentence(evaluation, rows, groups, (inside, outside), interval), rule
    )


def _spread_sentence(
    evaluation: pd.DataFrame,
    rows: pd.DataFrame,
    groups: dict[str, list[str]],
    spreads: tuple[float, float],
    interval: Interval,
) -> str:
    table = rows.pivot_table(index="subnetwork", columns="case", values="accuracy").dropna()
    ranges = table.max() - table.min()
    full = evaluation[evaluation["subnetwork"] == "full"].set_index("case")["accuracy"]
    widest = str(ranges[groups["OOD"]].idxmax())
    yardstick = (
        f" The full model scores {percent(full[groups['ID']].mean())} in-domain and {percent(full[groups['OOD']].mean())} out "
        f"of domain, the subnetworks {percent(table[groups['ID']].mean().mean())} and "
        f"{percent(table[groups['OOD']].mean().mean())} on average."
        if set(groups["ID"] + groups["OOD"]) <= set(full.index)
        else ""
    )
    agreement = ""
    if "agreement" in rows.columns and rows["agreement"].notna().all():
        by_group = rows.groupby("group")["agreement"].mean()
        agreement = (
            f" They give the full model's answer on {percent(by_group['ID'])} of in-domain and {percent(by_group['OOD'])} of "
            "out-of-domain rows."
        )
    return (
        f"Over {counted(len(table), 'seed')}, in-domain accuracy varies by {points(ranges[groups['ID']].mean())} from worst "
        f"to best (spread {points(spreads[0])}); the average out-of-domain case by {points(ranges[groups['OOD']].mean())} "
        f"(spread {points(spreads[1])}), most on {widest}: {percent(table[widest].min())} to {percent(table[widest].max())}. "
        f"Spread out of domain minus in-domain: {points(spreads[1] - spreads[0])} {in_points(interval)}.{yardstick}{agreement}"
    )


def _sparser(answer: Answer) -> report.Finding:
    """Whether the sparsest subnetworks generalize worse than the densest."""
    key, question = "sparser", "Do sparser subnetworks generalize worse?"
    sets = by_sparsity(answer["evaluation"])
    rule = (
        "Mean accuracy of each run over the out-of-domain cases, densest minus sparsest set; 95 % bootstrap interval over the "
        "runs. Yes if it lies above 0, no if below, undecided if it includes 0."
    )
    if len(sets) < 2:
        return report.not_measured(
            key, question, "only one sparsity was run", "All subnetworks have the same sparsity: nothing to compare."
        )
    (dense, first), (sparse, second) = next(iter(sets.items())), list(sets.items())[-1]
    a, b = _means(first), _means(second)
    lost = report.difference_interval(report.values(a["OOD"]), report.values(b["OOD"]))
    gap = report.difference_interval(report.values(a["OOD"] - a["ID"]), report.values(b["OOD"] - b["ID"]))
    verdict = report.sign_verdict(lost)
    short = {"yes": "sparser subnetworks generalize worse", "no": "sparser subnetworks generalize better, not worse"}.get(
        verdict, "it is undecided whether sparser subnetworks generalize worse"
    )
    compared = {
        "yes": "more than in-domain",
        "no": "less than in-domain",
    }.get(report.sign_verdict(gap), "not clearly more or less than in-domain")
    sentence = (
        f"From {sparsity(dense)} to {sparsity(sparse)}, mean out-of-domain accuracy goes from {percent(a['OOD'].mean())} to "
        f"{percent(b['OOD'].mean())}: a loss of {points(a['OOD'].mean() - b['OOD'].mean())} {in_points(lost)}. In-domain it "
        f"goes from {percent(a['ID'].mean())} to {percent(b['ID'].mean())}; the loss out of domain is {compared}."
    )
    return report.Finding(key, question, verdict, short, sentence, rule)


def _means(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean accuracy per run (index) and group (columns ID, OOD)."""
    return rows.pivot_table(index="subnetwork", columns="group", values="accuracy", aggfunc="mean").reindex(
        columns=["ID", "OOD"]
    )


def _by_case(evaluation: pd.DataFrame) -> report.TextTable:
    """One row per case: the full model's accuracy, and least, mean, most and standard deviation over each sparsity's runs.

    The full model's accuracy has its 95 % interval over rows.
    """
    full = evaluation[evaluation["subnetwork"] == "full"]
    told = report.with_interval(full, "accuracy", percent=True)
    whole = dict(zip(told["case"], told["accuracy (%) [95 %]"], strict=True))
    columns = ["group", "case", "full [95 %]"]
    for share in by_sparsity(evaluation):
        columns += [f"{100 * share:.0f} %: least", "mean", "most", "sd"]
    rows: list[tuple[str, ...]] = []
    for case, group in groups_of(evaluation).items():
        cells = [group, case, whole.get(case, "")]
        for runs in by_sparsity(evaluation).values():
            found = runs.loc[runs["case"] == case, "accuracy"]
            cells += [report.percent_text(value) for value in (found.min(), found.mean(), found.max(), found.std())]
        rows.append(tuple(cells))
    return report.TextTable("Accuracy by case (%)", tuple(columns), tuple(rows), labels=2)


def _by_run(evaluation: pd.DataFrame) -> report.TextTable:
    """One row per subnetwork: in-domain and out-of-domain accuracy, and its weakest case."""
    rows: list[tuple[str, ...]] = []
    for share, runs in by_sparsity(evaluation).items():
        for name in runs["subnetwork"].unique():
            run = runs[runs["subnetwork"] == name]
            means = run.groupby("group")["accuracy"].mean()
            ood = run[run["group"] == "OOD"]
            weakest = str(ood["case"].iloc[int(ood["accuracy"].argmin())]) if len(ood) else ""
            agreed = run["agreement"].mean() if "agreement" in run.columns else None
            shares = (run["sparsity"].iloc[0], means.get("ID"), means.get("OOD"), agreed)
            rows.append((f"{100 * share:.0f} %", str(name), weakest, *map(report.percent_text, shares)))
    columns = ("set", "subnetwork", "weakest case", "realised sparsity", "ID", "OOD", "agreement with full")
    return report.TextTable("Every subnetwork (%)", columns, tuple(rows), labels=3)
