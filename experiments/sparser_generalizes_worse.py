"""Do sparser subnetworks generalize worse, and sooner than they get worse in-domain?

The Heuristic Core, section 5: the final model pruned at every sparsity (5 to 95 % here; the paper's released runs: 5 to 70 %),
several seeds each. Reported are accuracy against sparsity on every case, the trend within each seed, and the sparsity at which
accuracy first falls three points below the full model's, in-domain against out of domain. Where the paper's released sweep is
at hand (`$HC_LENS_DATA/../reference`), the same is computed from it.

Run: `python -m experiments.sparser_generalizes_worse --preset desk`; the same command resumes.
"""

from dataclasses import dataclass

import pandas as pd

from experiments.shared.base import trained
from experiments.shared.command import Places, published_folder, run_experiment, versions
from experiments.shared.settings import Preset, Setting, embedded, nli_paper, smoke
from hc_lens import figures
from hc_lens.analysis import fall_gap, falls_at, sparsity_trend
from hc_lens.analysis.published import published_sweep
from hc_lens.report import Article, Section, text_table, with_interval
from hc_lens.stages import Measuring
from hc_lens.sweep import chosen_checkpoints, over_checkpoints, prune_checkpoints_into

QUESTION = "Do sparser subnetworks generalize worse, and at a lower sparsity than they get worse in-domain?"
DROP = 0.03


@dataclass(frozen=True)
class Config:
    """What is pruned, at which sparsities, with which seeds."""

    setting: Setting
    sparsities: tuple[float, ...]
    seeds: tuple[int, ...]
    measuring: Measuring


def config(preset: Preset) -> Config:
    """What is run at each scale."""
    if preset == "smoke":
        return Config(smoke(), (0.3, 0.5, 0.7), (42, 43), Measuring(500, 20))
    every_five = tuple(round(0.05 * i, 2) for i in range(1, 20))
    if preset == "desk":
        return Config(embedded(), every_five, (42, 43, 44), Measuring(2_000, 200, "auto"))
    return Config(nli_paper(), every_five, (42, 43, 44), Measuring(100_000))


def sweep(config: Config, places: Places) -> pd.DataFrame:
    """The final model pruned and evaluated at every sparsity."""
    base = trained(config.setting, places)
    final = chosen_checkpoints(base.finetuned)[-1:]
    pruning = [config.setting.prune(s) for s in config.sparsities]
    out = places.own / config.setting.name
    return over_checkpoints(prune_checkpoints_into(out, base.task, final, pruning, config.seeds, config.measuring, places.pool))


def told(table: pd.DataFrame, name: str) -> str:
    """Trend and fall in one sentence."""
    trend = sparsity_trend(table).set_index(["case", "group"])
    parts = [
        f"rho {row['rho']:.2f} [{row['low']:.2f}, {row['high']:.2f}] {where}"
        for group, where in (("ID", "in-domain"), ("OOD", "out of domain"))
        for _, row in trend.loc[[("mean over cases", group)]].iterrows()
    ]
    gap = fall_gap(table, drop=DROP)
    interval = f" [{100 * gap.low:.0f}, {100 * gap.high:.0f}]" if gap.n > 1 else ""
    later = f"{100 * gap.mean:.0f} points of sparsity{interval} later in-domain than out of domain ({gap.n} seeds)"
    fall = (
        f"accuracy first falls {100 * DROP:.0f} points {later}" if gap.n else "no seed falls both in-domain and out of domain"
    )
    return f"{name}: rank correlation of accuracy and sparsity within a seed {' and '.join(parts)}; {fall}."


def section(table: pd.DataFrame, anchor: str, heading: str) -> Section:
    """Accuracy against sparsity, with trend and fall by case."""
    trend = with_interval(sparsity_trend(table), "rho", digits=2)
    falls = with_interval(falls_at(table, drop=DROP), "sparsity", percent=True)
    return Section(
        anchor,
        heading,
        "Mean over seeds with its 95 % interval; dashed: the full model. `rho`: Spearman's correlation of accuracy and "
        f"sparsity within a seed. `sparsity`: the least one at which a seed is over {100 * DROP:.0f} points below the full "
        "model.",
        figures.accuracy_vs_sparsity(table),
        folded=[text_table(trend, "Trend by case", labels=2), text_table(falls, "Where accuracy first falls", labels=2)],
    )


def experiment(preset: Preset, places: Places) -> Article:
    """Everything up to the report."""
    chosen = config(preset)
    name = chosen.setting.name
    found = [(name, "sweep", f"Accuracy against sparsity: {name}", sweep(chosen, places))]
    if preset != "smoke" and (reference := published_folder()):
        published = published_sweep(reference / "mnli-acc_vs_sparsity.json")
        found.append(("published BERT on MNLI", "published", "The paper's released sweep", published))
    return Article(
        title="Sparser subnetworks and generalization",
        question=QUESTION,
        answer="\n".join(told(table, who) for who, _, _, table in found),
        sections=[section(table, anchor, heading) for _, anchor, heading, table in found],
        notes=chosen.setting.notes,
        provenance=versions(),
        config={"sparsities": chosen.sparsities, "seeds": chosen.seeds},
    )


if __name__ == "__main__":
    run_experiment("sparser_generalizes_worse", QUESTION, experiment)
