"""Which heads do the subnetworks share, and is that more than chance?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

from hc_lens import analysis, figures, report
from hc_lens.limits import Count
from hc_lens.prose import MINUS, counted, listed, p_text, sparsity
from hc_lens.questions.kept_core import CoreSummary, core_into, open_core_of
from hc_lens.questions.question import Answer, Question

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.questions.subject import Subject
    from hc_lens.sample import Sample
    from hc_lens.subnetwork import Subnetwork


@dataclass(frozen=True)
class HeuristicCore(Question):
    """The heads that the subnetworks of one or more pruning runs share, against chance."""

    k: Count | None = None
    """A core head is kept by at least so many subnetworks; all by default."""
    permutations: Count = 10_000
    """Of each run's heads within their layers, for the p-value."""
    chosen_for: int | None = None
    """Says that `k` was chosen from the same subnetworks, to give a core of at least so many heads."""

    name: ClassVar[str] = "core"
    tables: ClassVar[tuple[str, ...]] = ("core", "frequency", "mlps", "subnetwork_similarity", "joint")
    columns: ClassVar[Mapping[str, Sequence[str]]] = {
        "frequency": ("sparsity", "layer", "head", "count", "of"),
        "mlps": ("sparsity", "layer", "count", "of"),
        "joint": ("i", "j", "heads"),
    }

    def measure(self, run: Subject, sample: Sample) -> Mapping[str, pd.DataFrame]:
        return self.ask(run, sample).tables

    def ask(self, run: Subject, sample: Sample | None = None) -> Answer:
        sample = self.sample if sample is None else sample
        core = core_into(run.alive, self.k, self.permutations, seed=sample.seed, chosen_for=self.chosen_for)
        return self._answer(run, core)

    def kept(self, run: Subject) -> Answer | None:
        if not run.pruned or not run.home.file("core", "json").exists():
            return None
        return self._answer(run, open_core_of(run.alive))

    def _answer(self, run: Subject, core: CoreSummary) -> Answer:
        tables = core_tables({p.config.sparsity: p.subnetworks for p in run.alive})
        return Answer(self, {"core": kept_by(core, tables["frequency"]), **tables}, {"core": core})

    @classmethod
    def of_subnetworks(cls, subnetworks: Sequence[Subnetwork], core: analysis.Core, null: analysis.NullResult) -> Answer:
        """The answer from subnetworks of one sparsity in memory, their core and its null."""
        sparsity = subnetworks[0].sparsity
        summary = CoreSummary.of(core, null, [sparsity])
        tables = core_tables({sparsity: subnetworks})
        return Answer(cls(core.k), {"core": kept_by(summary, tables["frequency"]), **tables}, {"core": summary})

    def short(self, answer: Answer) -> str:
        return cast(CoreSummary, answer.options["core"]).short

    def findings(self, answer: Answer) -> list[report.Finding]:
        return [_core(answer), _rank(answer), _mlps(answer)]

    def sections(self, answer: Answer) -> list[report.Section]:
        found = {finding.key: finding for finding in answer.findings}
        joint = _joint(answer, found["rank"])
        return [_heads(answer, found["core"]), *([] if joint is None else [joint])]


def core_tables(subnetworks: Mapping[float, Sequence[Subnetwork]]) -> Mapping[str, pd.DataFrame]:
    """How often heads and MLPs are kept at each sparsity, how alike the subnetworks are, and, at two, both counts together."""
    import numpy as np
    import pandas as pd

    def stacked(of: Any) -> pd.DataFrame:
        return pd.concat([of(subs).assign(sparsity=share) for share, subs in subnetworks.items()], ignore_index=True)

    alike = [
        {
            "sparsity": share,
            "n": len(subs),
            "mean": float(analysis.jaccard(subs).to_numpy()[np.triu_indices(len(subs), 1)].mean()),
        }
        for share, subs in subnetworks.items()
        if len(subs) > 1
    ]
    tables = {"frequency": stacked(analysis.head_frequency), "mlps": stacked(analysis.mlp_frequency)}
    tables["subnetwork_similarity"] = pd.DataFrame(alike, columns=["sparsity", "n", "mean"])
    if len(subnetworks) < 2:
        return tables
    first, *_, last = subnetworks.values()
    rank = analysis.spearman(first, last)
    return tables | {"joint": analysis.joint_histogram(first, last).assign(rho=rank.rho, p_value=rank.p_value, n_heads=rank.n)}


def _core(answer: Answer) -> report.Finding:
    """Whether the subnetworks share more heads than chance would have them share."""
    question, found = "Do subnetworks share a core of heads larger than chance?", cast(CoreSummary, answer.options["core"])
    rule = (
        "A core head is kept in at least k of the n subnetworks. Chance: a permutation null that keeps how many heads each "
        "subnetwork keeps in each layer; the expected number for independent subnetworks uses each one's own keep rate. Yes if "
        "p < 0.05; no if the core is no larger than that null's 2.5 % quantile or is empty; undecided otherwise."
    )
    size = len(found.heads)
    verdict: report.Verdict = "yes" if size and found.p_value < 0.05 else "no" if size <= found.null_low else "undecided"
    short = {
        "yes": f"the subnetworks share a core of {counted(size, 'head')}, more than chance",
        "no": "the subnetworks share no more heads than chance",
    }.get(verdict, f"the subnetworks share {counted(size, 'head')}, not clearly more than chance")
    of = f"{found.k} of {found.n}" if found.k < found.n else f"all {found.n}"
    runs = f"{of} subnetworks ({listed([f'{100 * s:.0f} %' for s in found.sparsities])} sparsity)"
    chance = (
        f"Chance gives {found.null_low:g} to {found.null_high:g} (layer-stratified, 95 %; p = {p_text(found.p_value)}), and "
        f"independent subnetworks {found.expected:.2g} on average."
    )
    if found.chosen_for is not None:
        chance += (
            f" The {found.k} was chosen from these same subnetworks, as the largest k with a core of at least "
            f"{counted(found.chosen_for, 'head')}, so that p is optimistic."
        )
    if not size:
        return report.Finding("core", question, verdict, short, f"No head is kept in {runs}. {chance}", rule)
    n_layers = int(answer["frequency"]["layer"].max()) + 1
    layers = sorted({head.layer for head in found.heads})
    early = sum(head.layer < n_layers / 2 for head in found.heads)
    sentence = (
        f"{counted(size, 'head')} kept in {runs}: {listed([str(head) for head in found.heads])}. {chance} They lie in "
        f"{'layer' if len(layers) == 1 else 'layers'} {listed([str(layer) for layer in layers])} (of 0 to {n_layers - 1}); "
        f"{early} of {size} in the lower half."
    )
    return report.Finding("core", question, verdict, short, sentence, rule)


def _rank(answer: Answer) -> report.Finding:
    """Whether the lowest and the highest sparsity keep the same heads often."""
    key, question = "rank", "Do the sparsities agree on which heads to keep?"
    rule = "Spearman correlation of how often each head is kept, over all heads. Yes if positive, no if negative, at p < 0.05."
    if "joint" not in answer.tables:
        why = "Head frequencies at two sparsities were not correlated in this run."
        return report.not_measured(key, question, "the sparsities were not compared", why)
    rho, p_value, n_heads = answer["joint"][["rho", "p_value", "n_heads"]].iloc[0]
    clear = p_value < 0.05
    verdict: report.Verdict = "yes" if clear and rho > 0 else "no" if clear else "undecided"
    short = {
        "yes": "heads kept often at one sparsity are kept often at the other",
        "no": "heads kept often at one sparsity are kept rarely at the other",
    }.get(verdict, "it is undecided whether the sparsities agree on which heads to keep")
    sentence = (
        f"Over {counted(int(n_heads), 'head')}, rho = {rho:.2f} (p = {p_text(p_value)})."
        if abs(rho) <= 1
        else "One of the two keeps every head equally often, so there is no order to compare."
    )
    return report.Finding(key, question, verdict, short, sentence.replace("-", MINUS, 1) if rho < 0 else sentence, rule)


def _mlps(answer: Answer) -> report.Finding:
    """Whether every subnetwork keeps every MLP."""
    key, question, table = "mlps", "Are the MLPs always kept?", answer["mlps"]
    kept, of = table["count"].sum(), table["of"].sum()
    every = bool(kept == of)
    short = "every subnetwork keeps every MLP" if every else "some subnetworks prune MLPs"
    shares = table.groupby("sparsity")[["count", "of"]].sum()
    per = listed(
        [
            f"{row['count'] / row['of']:.0%}".replace("%", " %") + f" at {sparsity(float(str(s)))}"
            for s, row in shares.iterrows()
        ]
    )
    pruned = table.groupby("layer")[["count", "of"]].sum()
    gone = pruned[pruned["count"] < pruned["of"]]
    where = "" if every else f" Pruned at least once: {listed([f'L{layer}.MLP' for layer in gone.index])}."
    sentence = f"MLPs kept: {int(kept)} of {int(of)} over all subnetworks and layers ({per}).{where}"
    return report.Finding(
        key, question, "yes" if every else "no", short, sentence, "A count, no statistics: yes if none was pruned."
    )


def _heads(answer: Answer, found: report.Finding) -> report.Section:
    core, frequency = cast(CoreSummary, answer.options["core"]), answer["frequency"]
    of = f"all {core.n}" if core.k == core.n else f"at least {core.k} of {core.n}"
    panels, n_heads = frequency["sparsity"].nunique(), int(frequency["head"].max()) + 1
    alike = report.text_table(
        answer["subnetwork_similarity"], "Mean Jaccard similarity of two subnetworks' heads", percent=["sparsity"]
    )
    return report.Section(
        "heads",
        found.heading,
        f"How many subnetworks keep each head. Outlined: the core, kept in {of}.",
        figures.head_heatmap(frequency, core.heads),
        shown=(report.text_table(answer["core"], "The core, and how many subnetworks keep its heads"),) if core.heads else (),
        folded=(_frequency(frequency), alike),
        width=(90 + panels * (40 + 24 * n_heads), 100 + panels * (60 + 40 * n_heads)),
    )


def kept_by(core: CoreSummary, frequency: pd.DataFrame) -> pd.DataFrame:
    """One row per core head: subnetworks that keep it at each sparsity."""
    wide = frequency.pivot_table(index=["layer", "head"], columns="sparsity", values="count")
    wide.columns = [f"runs at {100 * share:.0f} %" for share in wide.columns]
    kept = wide.reindex(list(core.heads)).reset_index(drop=True)
    kept.insert(0, "head", [str(head) for head in core.heads])
    return kept


def _frequency(frequency: pd.DataFrame) -> report.TextTable:
    """One row per layer, one column per head: runs that keep the head, one number per sparsity."""
    table = frequency.sort_values(["layer", "head", "sparsity"])
    cells = table.groupby(["layer", "head"])["count"].agg(lambda counts: " / ".join(str(count) for count in counts)).unstack()
    shares = " / ".join(f"{100 * share:.0f} %" for share in sorted(table["sparsity"].unique()))
    title = f"Runs that keep each head ({shares} sparsity; of {int(table['of'].max())} runs)"
    rows = tuple((f"L{layer}", *map(str, row)) for layer, row in zip(cells.index, cells.to_numpy(), strict=True))
    return report.TextTable(title, ("layer", *(f"H{head}" for head in cells.columns)), rows)


def _joint(answer: Answer, found: report.Finding) -> report.Section | None:
    if (joint := answer.tables.get("joint")) is None:
        return None
    shares = sorted(answer["frequency"]["sparsity"].unique())
    low, high = f"{100 * shares[0]:.0f} %", f"{100 * shares[-1]:.0f} %"
    shown = joint[joint["heads"] > 0].sort_values(["i", "j"], ascending=False)[["i", "j", "heads"]]
    shown = shown.set_axis([f"runs at {low}", f"runs at {high}", "heads"], axis="columns")
    return report.Section(
        "joint",
        found.heading,
        "Each mark is a group of heads, its area their number. Top right: heads that every run keeps at both sparsities.",
        figures.joint_histogram(joint, f"runs at {low} that keep the head", f"runs at {high} that keep the head"),
        folded=(report.text_table(shown, "Heads by how many runs keep them", labels=0),),
        width=(420, 600),
    )
