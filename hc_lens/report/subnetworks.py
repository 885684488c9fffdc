"""Findings on training and on the subnetworks: onset, spread over seeds, sparsity, the shared core, the MLPs."""

import numpy as np
import pandas as pd

from hc_lens.analysis import nearly_best, spread_over_seeds
from hc_lens.analysis import onset as first_above
from hc_lens.report.findings import (
    ENOUGH,
    MINUS,
    Finding,
    Verdict,
    counted,
    difference_interval,
    in_points,
    listed,
    not_measured,
    p_text,
    percent,
    points,
    sign_verdict,
    sparsity,
    values,
)
from hc_lens.report.inputs import ReportInputs
from hc_lens.statistics import Interval, bootstrap_interval

_TWICE = 2.0


def onset(inputs: ReportInputs) -> Finding:
    """Whether out-of-domain accuracy rises later in fine-tuning than in-domain accuracy."""
    question = "Does generalization come after in-domain learning?"
    rule = (
        "Onset: the first checkpoint at which the mean accuracy over the group's cases is above a level, here nine tenths of "
        "the way from the group's first checkpoint to its best. Yes if it is later out of domain; no if it is not, or if "
        "accuracy there never rises by 5 points; undecided if it never rises in-domain."
    )
    if inputs.training is None:
        return not_measured(
            "onset", question, "the course of fine-tuning was not recorded", "This run holds no checkpoint accuracies."
        )
    checkpoints = inputs.training["step"].nunique()
    if checkpoints < ENOUGH or not {"ID", "OOD"} <= set(inputs.training["group"]):
        short = "too few checkpoints were evaluated to tell when generalization sets in"
        return Finding("onset", question, "undecided", short, f"Only {counted(checkpoints, 'checkpoint')} evaluated.", rule)
    try:
        inside, outside = (first_above(inputs.training, level=nearly_best, group=group) for group in ("ID", "OOD"))
    except ValueError as error:  # a checkpoint without an accuracy: its mean would be over other cases
        return Finding("onset", question, "undecided", "the checkpoints were not all evaluated alike", f"{error}.", rule)
    here, there = inside.curve["accuracy"], outside.curve["accuracy"]
    if outside.step is None or there.max() - there.iloc[0] < 0.05:
        short = "out-of-domain accuracy never rises during fine-tuning"
        sentence = (
            f"Out-of-domain accuracy starts at {percent(there.iloc[0])} and never gets above {percent(there.max())}, while "
            f"in-domain accuracy reaches {percent(here.max())}."
        )
        return Finding("onset", question, "no", short, sentence, rule)
    if inside.step is None:
        short = "in-domain accuracy never rises during fine-tuning, so that nothing can come after it"
        sentence = f"In-domain accuracy starts at {percent(here.iloc[0])}, its best, while out of domain it rises."
        return Finding("onset", question, "undecided", short, sentence, rule)
    later = outside.step > inside.step
    short = (
        "generalization comes after in-domain learning" if later else "generalization does not come after in-domain learning"
    )
    sentence = (
        f"In-domain accuracy has nearly arrived by step {inside.step} (best {percent(here.max())}), out-of-domain accuracy by "
        f"step {outside.step} (best {percent(there.max())}, last {percent(there.iloc[-1])})."
    )
    return Finding("onset", question, "yes" if later else "no", short, sentence, rule)


def spread(inputs: ReportInputs, share: float) -> Finding:
    """Whether the subnetworks of one sparsity agree in-domain and differ out of domain."""
    key, question = f"spread-{share:g}", f"At {sparsity(share)}, do subnetworks agree in-domain and differ out of domain?"
    rule = (
        "Spread: standard deviation over seeds, averaged over the group's cases, less the binomial noise of a case's rows "
        "(which "
        "understates it, as all subnetworks see the same rows). Yes if the out-of-domain spread is at least twice the "
        "in-domain "
        "one and the 95 % bootstrap interval of their difference, over seeds, lies above 0; undecided if it includes 0; no "
        "otherwise."
    )
    rows = inputs.by_sparsity[share]
    table = rows.pivot_table(index="subnetwork", columns="case", values="accuracy").dropna()
    n = rows.groupby("case")["n"].first() if "n" in rows.columns else pd.Series(np.inf, index=table.columns)
    groups = {g: [c for c in inputs.cases(g) if c in table.columns] for g in ("ID", "OOD")}
    if not groups["ID"] or not groups["OOD"]:
        return not_measured(
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
    enough = len(table) >= ENOUGH
    interval = bootstrap_interval(accuracies, excess) if enough else Interval(-np.inf, np.inf)
    inside, outside = float(spreads[:split].mean()), float(spreads[split:].mean())
    # An interval around 0 leaves it open; a clear one below a factor of two is no "agree here, differ there".
    sign = sign_verdict(interval)
    verdict: Verdict = "no" if sign == "yes" and outside < _TWICE * inside else sign
    short = {
        "yes": f"subnetworks that agree in-domain differ out of domain at {sparsity(share)}",
        "no": f"subnetworks do not differ much more out of domain than in-domain at {sparsity(share)}",
    }.get(verdict, f"it is undecided whether subnetworks differ more out of domain than in-domain at {sparsity(share)}")
    return Finding(
        key, question, verdict, short, _spread_sentence(inputs, rows, table, groups, (inside, outside), interval), rule
    )


def _spread_sentence(
    inputs: ReportInputs,
    rows: pd.DataFrame,
    table: pd.DataFrame,
    groups: dict[str, list[str]],
    spreads: tuple[float, float],
    interval: Interval,
) -> str:
    ranges = table.max() - table.min()
    full = inputs.full.set_index("case")["accuracy"]
    widest = str(ranges[groups["OOD"]].idxmax())
    yardstick = (
        f" The full model scores {percent(full[groups['ID']].mean())} in-domain and {percent(full[groups['OOD']].mean())} out "
        "of "
        f"domain, the subnetworks {percent(table[groups['ID']].mean().mean())} and "
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
        "to best "
        f"(spread {points(spreads[0])}); the average out-of-domain case by {points(ranges[groups['OOD']].mean())} (spread "
        f"{points(spreads[1])}), most on {widest}: {percent(table[widest].min())} to {percent(table[widest].max())}. Spread "
        "out of "
        f"domain minus in-domain: {points(spreads[1] - spreads[0])} {in_points(interval)}.{yardstick}{agreement}"
    )


def sparser(inputs: ReportInputs) -> Finding:
    """Whether the sparsest subnetworks generalize worse than the densest."""
    key, question = "sparser", "Do sparser subnetworks generalize worse?"
    sets = inputs.by_sparsity
    rule = (
        "Mean accuracy of each run over the out-of-domain cases, densest minus sparsest set; 95 % bootstrap interval over the "
        "runs. Yes if it lies above 0, no if below, undecided if it includes 0."
    )
    if len(sets) < 2:
        return not_measured(
            key, question, "only one sparsity was run", "All subnetworks have the same sparsity: nothing to compare."
        )
    (dense, first), (sparse, second) = next(iter(sets.items())), list(sets.items())[-1]
    a, b = _means(first), _means(second)
    lost = difference_interval(values(a["OOD"]), values(b["OOD"]))
    gap = difference_interval(values(a["OOD"] - a["ID"]), values(b["OOD"] - b["ID"]))
    verdict = sign_verdict(lost)
    short = {"yes": "sparser subnetworks generalize worse", "no": "sparser subnetworks generalize better, not worse"}.get(
        verdict, "it is undecided whether sparser subnetworks generalize worse"
    )
    compared = {
        "yes": "more than in-domain",
        "no": "less than in-domain",
    }.get(sign_verdict(gap), "not clearly more or less than in-domain")
    sentence = (
        f"From {sparsity(dense)} to {sparsity(sparse)}, mean out-of-domain accuracy goes from {percent(a['OOD'].mean())} to "
        f"{percent(b['OOD'].mean())}: a loss of {points(a['OOD'].mean() - b['OOD'].mean())} {in_points(lost)}. In-domain it "
        "goes "
        f"from {percent(a['ID'].mean())} to {percent(b['ID'].mean())}; the loss out of domain is {compared}."
    )
    return Finding(key, question, verdict, short, sentence, rule)


def _means(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean accuracy per run (index) and group (columns ID, OOD)."""
    return rows.pivot_table(index="subnetwork", columns="group", values="accuracy", aggfunc="mean").reindex(
        columns=["ID", "OOD"]
    )


def core(inputs: ReportInputs) -> Finding:
    """Whether the subnetworks share more heads than chance would have them share."""
    question, found = "Do subnetworks share a core of heads larger than chance?", inputs.core
    rule = (
        "A core head is kept in at least k of the n subnetworks. Chance: a permutation null that keeps how many heads each "
        "subnetwork keeps in each layer; the expected number for independent subnetworks uses each one's own keep rate. Yes if "
        "p < 0.05; no if the core is no larger than that null's 2.5 % quantile or is empty; undecided otherwise."
    )
    size = len(found.heads)
    verdict: Verdict = "yes" if size and found.p_value < 0.05 else "no" if size <= found.null_low else "undecided"
    short = {
        "yes": f"the subnetworks share a core of {counted(size, 'head')}, more than chance",
        "no": "the subnetworks share no more heads than chance",
    }.get(verdict, f"the subnetworks share {counted(size, 'head')}, not clearly more than chance")
    of = f"{found.k} of {found.n}" if found.k < found.n else f"all {found.n}"
    runs = f"{of} subnetworks ({listed([f'{100 * s:.0f} %' for s in found.sparsities])} sparsity)"
    chance = (
        f"Chance gives {found.null_low:g} to {found.null_high:g} (layer-stratified, 95 %; p = {p_text(found.p_value)}), and "
        "independent "
        f"subnetworks {found.expected:.2g} on average."
    )
    if found.chosen_for is not None:
        chance += (
            f" The {found.k} was chosen from these same subnetworks, as the largest k with a core of at least "
            f"{counted(found.chosen_for, 'head')}, so that p is optimistic."
        )
    if not size:
        return Finding("core", question, verdict, short, f"No head is kept in {runs}. {chance}", rule)
    n_layers = int(inputs.frequency["layer"].max()) + 1
    layers = sorted({head.layer for head in found.heads})
    early = sum(head.layer < n_layers / 2 for head in found.heads)
    sentence = (
        f"{counted(size, 'head')} kept in {runs}: {listed([str(head) for head in found.heads])}. {chance} They lie in "
        f"{'layer' if len(layers) == 1 else 'layers'} {listed([str(layer) for layer in layers])} (of 0 to {n_layers - 1}); "
        f"{early} of "
        f"{size} in the lower half."
    )
    return Finding("core", question, verdict, short, sentence, rule)


def rank(inputs: ReportInputs) -> Finding:
    """Whether the lowest and the highest sparsity keep the same heads often."""
    key, question = "rank", "Do the sparsities agree on which heads to keep?"
    rule = "Spearman correlation of how often each head is kept, over all heads. Yes if positive, no if negative, at p < 0.05."
    if inputs.rank is None:
        why = "Head frequencies at two sparsities were not correlated in this run."
        return not_measured(key, question, "the sparsities were not compared", why)
    rho, p_value, n_heads = inputs.rank
    clear = p_value < 0.05
    verdict: Verdict = "yes" if clear and rho > 0 else "no" if clear else "undecided"
    short = {
        "yes": "heads kept often at one sparsity are kept often at the other",
        "no": "heads kept often at one sparsity are kept rarely at the other",
    }.get(verdict, "it is undecided whether the sparsities agree on which heads to keep")
    sentence = (
        f"Over {counted(n_heads, 'head')}, rho = {rho:.2f} (p = {p_text(p_value)})."
        if np.isfinite(rho)
        else "One of the two keeps every head equally often, so there is no order to compare."
    )
    return Finding(key, question, verdict, short, sentence.replace("-", MINUS, 1) if rho < 0 else sentence, rule)


def mlps(inputs: ReportInputs) -> Finding:
    """Whether every subnetwork keeps every MLP."""
    key, question = "mlps", "Are the MLPs always kept?"
    if inputs.mlps is None:
        return not_measured(key, question, "whether the MLPs are kept was not recorded", "This run holds no table of MLPs.")
    kept, of = inputs.mlps["count"].sum(), inputs.mlps["of"].sum()
    every = bool(kept == of)
    short = "every subnetwork keeps every MLP" if every else "some subnetworks prune MLPs"
    shares = inputs.mlps.groupby("sparsity")[["count", "of"]].sum()
    per = listed(
        [
            f"{row['count'] / row['of']:.0%}".replace("%", " %") + f" at {sparsity(float(str(s)))}"
            for s, row in shares.iterrows()
        ]
    )
    pruned = inputs.mlps.groupby("layer")[["count", "of"]].sum()
    gone = pruned[pruned["count"] < pruned["of"]]
    where = "" if every else f" Pruned at least once: {listed([f'L{layer}.MLP' for layer in gone.index])}."
    sentence = f"MLPs kept: {int(kept)} of {int(of)} over all subnetworks and layers ({per}).{where}"
    return Finding(key, question, "yes" if every else "no", short, sentence, "A count, no statistics: yes if none was pruned.")
