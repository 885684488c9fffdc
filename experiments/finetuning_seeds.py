"""Is the heuristic core the same over fine-tuning seeds of one pretrained model?

No paper has this one: the Heuristic Core compares pruning seeds of a single fine-tuned model. Here one starting model is
fine-tuned with several seeds (data order and dropout), each result is pruned with the same pruning seeds, and the cores are
compared: what all share, against cores of the same size in each layer but at random places.

Run: `python -m experiments.finetuning_seeds --preset desk`; the same command resumes.
"""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from experiments.shared.base import Base, pruned_base
from experiments.shared.command import Places, run_experiment, versions
from experiments.shared.settings import Preset, Setting, embedded, nli_paper, smoke
from hc_lens import figures
from hc_lens.analysis import SharedCore, head_frequency, shared_over
from hc_lens.prose import p_text
from hc_lens.pruning import evaluation_of
from hc_lens.report import Article, Section, text_table

QUESTION = "Is the heuristic core the same over fine-tuning seeds of one pretrained model?"


@dataclass(frozen=True)
class Config:
    """Fine-tuning seeds, each a setting, and how every model is pruned."""

    settings: tuple[Setting, ...]
    sparsities: tuple[float, ...]
    seeds: tuple[int, ...]


def config(preset: Preset) -> Config:
    """What is run at each scale."""
    if preset == "smoke":
        return Config(tuple(_seeded(smoke(), seed) for seed in (0, 1)), (0.5,), (42, 43))
    if preset == "desk":
        return Config(tuple(embedded(seed=seed) for seed in range(5)), (0.5, 0.7), tuple(range(42, 48)))
    return Config(tuple(_seeded(nli_paper(), seed) for seed in range(5)), (0.5, 0.7), tuple(range(42, 54)))


def _seeded(setting: Setting, seed: int) -> Setting:
    return replace(setting, name=f"{setting.name}-seed-{seed}", train=replace(setting.train, seed=seed))


def cores_table(bases: list[Base], shared: SharedCore) -> pd.DataFrame:
    """One row per fine-tuning seed: its core, and the model's accuracy."""
    rows: list[dict[str, object]] = []
    for base, core in zip(bases, shared.cores, strict=True):
        table = evaluation_of(base.pruned[0])
        full = table[table["subnetwork"] == "full"].groupby("group")["accuracy"].mean()
        rows.append(
            {
                "fine-tuning seed": base.trained.setting.train.seed,
                "core": " ".join(map(str, core.heads)),
                "heads": len(core.heads),
                "k": core.k,
                "n": core.n,
                "full ID": float(full["ID"]),
                "full OOD": float(full["OOD"]),
            }
        )
    return pd.DataFrame(rows)


def told(shared: SharedCore) -> str:
    """What the cores share, against chance."""
    similarity = shared.jaccard.to_numpy()
    between = similarity[np.triu_indices(len(similarity), 1)]
    chance = shared.chance
    heads = " ".join(map(str, shared.heads)) or "none"
    return (
        f"The cores of {len(shared.cores)} fine-tuning seeds share {len(shared.heads)} heads ({heads}); cores of the same "
        f"size in each layer at random places share {chance.mean:.2f} (95 % {chance.interval.low:g} to "
        f"{chance.interval.high:g}; "
        f"p = {p_text(shared.p_value)}). Two cores have a Jaccard similarity of {between.mean():.2f} ({between.min():.2f} to "
        f"{between.max():.2f})."
    )


def experiment(preset: Preset, places: Places) -> Article:
    """Everything up to the report."""
    chosen = config(preset)
    bases = [pruned_base(s, places, sparsities=chosen.sparsities, seeds=chosen.seeds) for s in chosen.settings]
    names = [f"seed {setting.train.seed}" for setting in chosen.settings]
    subnetworks = [[sub for each in base.pruned for sub in each.subnetworks] for base in bases]
    # The strictest rule under which every model has a core.
    k = min(base.core.k for base in bases)
    shared = shared_over(subnetworks, k=k, names=names)
    frequency = pd.concat([head_frequency(subs).assign(sparsity=i) for i, subs in enumerate(subnetworks)], ignore_index=True)
    sections = [
        Section(
            "cores",
            "Jaccard similarity of the cores",
            f"The core of a fine-tuning seed: heads that at least {k} of its {len(subnetworks[0])} subnetworks keep.",
            figures.jaccard_heatmap(shared.jaccard),
            shown=[text_table(cores_table(bases, shared), "Cores", labels=2, percent=["full ID", "full OOD"])],
            width=(320, 640),
        ),
        Section(
            "frequency",
            "How often each head is kept, over all fine-tuning seeds",
            "Outlined: heads in every core.",
            figures.head_heatmap(_pooled(frequency), shared.heads),
        ),
    ]
    return Article(
        title="The core over fine-tuning seeds",
        question=QUESTION,
        answer=told(shared),
        sections=sections,
        warnings=[text for base in bases for each in base.pruned for text in each.warnings],
        notes=chosen.settings[0].notes,
        provenance=versions(),
        config={"fine-tuning seeds": names, "sparsities": chosen.sparsities, "seeds": chosen.seeds},
    )


def _pooled(frequency: pd.DataFrame) -> pd.DataFrame:
    """Counts over all models, in one panel."""
    total = frequency.groupby(["layer", "head"], as_index=False)[["count", "of"]].sum()
    return total.assign(sparsity=0.0)


if __name__ == "__main__":
    run_experiment("finetuning_seeds", QUESTION, experiment)
