"""Are subnetworks that generalize differently competing circuits, or do they share their heads?

The Heuristic Core, section 5.2: if one subnetwork implemented a heuristic and another one generalized, and pruning chose
between them, their heads should differ. The paper finds that all share a core. Here: how often each head is kept at two
sparsities, the core against a permutation null, and the test of the competing account: are two subnetworks of the
better-generalizing half (or of the worse half) more alike than one of each?

Run: `python -m experiments.shared_heads --preset desk`; the same command resumes.
"""

import pandas as pd

from experiments.shared.base import SEEDS, SMOKE_SEEDS, SMOKE_SPARSITIES, SPARSITIES, Base, pruned_base
from experiments.shared.command import Places, run_experiment, versions
from experiments.shared.settings import Preset, nli_desk, nli_paper, smoke
from hc_lens import figures
from hc_lens.analysis import Comparison, compare_runs, head_frequency, joint_histogram, spearman
from hc_lens.prose import p_text
from hc_lens.pruning import Pruned, evaluation_of
from hc_lens.report import Article, Section, text_table, with_interval
from hc_lens.subnetwork import Subnetwork

QUESTION = "Are subnetworks that generalize differently competing circuits, or do they share their heads?"


def base_of(preset: Preset, places: Places) -> Base:
    """The subnetworks at each scale."""
    if preset == "smoke":
        return pruned_base(smoke(), places, sparsities=SMOKE_SPARSITIES, seeds=SMOKE_SEEDS)
    setting = nli_desk() if preset == "desk" else nli_paper()
    return pruned_base(setting, places, sparsities=SPARSITIES, seeds=SEEDS)


def halves(pruned: Pruned) -> tuple[list[Subnetwork], list[Subnetwork]]:
    """The subnetworks of a run that generalize better, and the others, by mean accuracy over the OOD cases."""
    table = evaluation_of(pruned)
    ood = table[(table["group"] == "OOD") & (table["subnetwork"] != "full")]
    order = ood.groupby("seed")["accuracy"].mean().sort_values(ascending=False)
    better = set(order.index[: len(order) // 2])
    subs = pruned.subnetworks
    return [sub for sub in subs if sub.seed in better], [sub for sub in subs if sub.seed not in better]


def competing(pruned: Pruned) -> Comparison:
    """The two halves compared: competing circuits would be more alike within a half than between them."""
    return compare_runs(*halves(pruned), names=("better", "worse"))


def sizes(found: Comparison) -> tuple[int, int]:
    """How many subnetworks each half has."""
    first, second = found.cores.cores
    return first.n, second.n


def difference(found: Comparison) -> pd.Series:
    """The row of Jaccard similarity within minus between halves."""
    return found.pairs[found.pairs["kind"] == "within - between"].iloc[0]


def told(base: Base, compared: list[tuple[float, Comparison]]) -> str:
    """The core, the correlation of frequencies, and the test, in sentences."""
    core, (low, high) = base.core, (base.pruned[0], base.pruned[-1])
    rank = spearman(low.subnetworks, high.subnetworks)
    parts = [
        f"{core.k} of {core.n} subnetworks share {len(core.heads)} heads ({' '.join(map(str, core.heads))}; permutation null "
        f"{core.null_low:g} to {core.null_high:g}, p = {p_text(core.p_value)}); head frequencies at the two sparsities "
        f"correlate with rho = {rank.rho:.2f} (p = {p_text(rank.p_value)})."
    ]
    for sparsity, found in compared:
        row = difference(found)
        parts.append(
            f"At {sparsity:.0%} sparsity two subnetworks of one half are {row['mean']:+.3f} [{row['low']:+.3f}, "
            f"{row['high']:+.3f}] more alike (Jaccard) than one of each."
        )
    return " ".join(parts)


def experiment(preset: Preset, places: Places) -> Article:
    """Everything up to the report."""
    base = base_of(preset, places)
    compared = [(each.config.sparsity, competing(each)) for each in base.pruned]
    first, last = base.pruned[0], base.pruned[-1]
    frequency = pd.concat(
        [head_frequency(each.subnetworks).assign(sparsity=each.config.sparsity) for each in base.pruned], ignore_index=True
    )
    joint = joint_histogram(first.subnetworks, last.subnetworks)
    names = [f"runs at {each.config.sparsity:.0%} that keep the head" for each in (first, last)]
    sections = [
        Section(
            "heads",
            "How often each head is kept",
            f"Outlined: the core, kept by {base.core.k} of {base.core.n}.",
            figures.head_heatmap(frequency, base.core.heads),
        ),
        Section(
            "joint",
            "Heads that are kept at one sparsity are kept at the other",
            "Each mark is a group of heads, its area their number. Top right: heads that every run keeps.",
            figures.joint_histogram(joint, names[0], names[1]),
            width=(420, 600),
        ),
        *(
            Section(
                f"competing-{i}",
                f"Similarity of subnetworks at {sparsity:.0%} sparsity, the better-generalizing half first",
                "Jaccard similarity of kept heads. Competing circuits would show as two bright blocks on a dark ground.",
                figures.jaccard_heatmap(found.similarity, sizes(found)),
                shown=[text_table(with_interval(found.pairs, "mean"), "Similarity by kind of pair")],
            )
            for i, (sparsity, found) in enumerate(compared)
        ),
    ]
    return Article(
        title="Shared heads or competing subnetworks",
        question=QUESTION,
        answer=told(base, compared),
        sections=sections,
        warnings=[text for each in base.pruned for text in each.warnings],
        notes=base.trained.setting.notes,
        provenance=versions(),
        config={"sparsities": [each.config.sparsity for each in base.pruned], "seeds": [s.seed for s in first.subnetworks]},
    )


if __name__ == "__main__":
    run_experiment("shared_heads", QUESTION, experiment)
