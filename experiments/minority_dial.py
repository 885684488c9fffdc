"""How do generalization, its onset and the heuristic core depend on the rate of examples that break the heuristic?

No paper has this one. The embedded grammar has a dial: the share of training pairs in which lexical overlap does not mean
entailment. At each setting of the dial the same starting weights are fine-tuned with several seeds, every fine-tuned model is
pruned, and its onset of generalization and its core are found.

Run: `python -m experiments.minority_dial --preset desk`; the same command resumes.
"""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from experiments.shared.base import Base, pruned_base
from experiments.shared.command import Places, run_experiment, versions
from experiments.shared.settings import Preset, Setting, embedded, smoke
from hc_lens.analysis import onset
from hc_lens.figures import PALETTE, TEMPLATE
from hc_lens.pruning import evaluation_of
from hc_lens.report import Article, Section, text_table, with_interval
from hc_lens.statistics import mean_over_seeds
from hc_lens.train import evaluations

QUESTION = (
    "How do generalization, its onset and the heuristic core depend on the share of training examples that break the heuristic?"
)
LEVEL = 0.75


@dataclass(frozen=True)
class Config:
    """The dial's settings, each with several fine-tuning seeds, and how every model is pruned."""

    settings: tuple[tuple[float, int, Setting], ...]
    sparsities: tuple[float, ...]
    seeds: tuple[int, ...]


def config(preset: Preset) -> Config:
    """What is run at each scale; the published scale has no dial, so that `paper` is the desk with more seeds."""
    if preset == "smoke":
        quick = smoke()
        dialled = [
            (
                rate,
                0,
                replace(
                    quick, name=f"smoke-{rate:g}", task=embedded(minority=rate, n_train=2_000, n_id=100, n_ood_per_case=20).task
                ),
            )
            for rate in (0.02, 0.2)
        ]
        return Config(tuple(dialled), (0.5,), (42, 43))
    rates, finetuning = (0.0, 0.01, 0.02, 0.04, 0.08, 0.16), range(2 if preset == "desk" else 5)
    dialled = [(rate, seed, embedded(minority=rate, seed=seed)) for rate in rates for seed in finetuning]
    return Config(tuple(dialled), (0.5,), tuple(range(42, 48 if preset == "desk" else 54)))


def measured(rate: float, seed: int, base: Base) -> dict[str, object]:
    """One model: accuracies of it and of its subnetworks, the onset of generalization, and the core."""
    training = evaluations(base.trained.finetuned)
    start = onset(training, level=LEVEL)
    table = pd.concat([evaluation_of(each) for each in base.pruned], ignore_index=True)
    means = table.assign(full=table["subnetwork"] == "full").groupby(["full", "group"])["accuracy"].mean()
    return {
        "minority": rate,
        "finetuning seed": seed,
        "full ID": float(means[True, "ID"]),
        "full OOD": float(means[True, "OOD"]),
        "subnetworks ID": float(means[False, "ID"]),
        "subnetworks OOD": float(means[False, "OOD"]),
        "onset": np.nan if start.step is None else float(start.step),
        "core": len(base.core.heads),
        "chance": base.core.expected,
        "k": base.core.k,
        "n": base.core.n,
        "p": base.core.p_value,
        "heads": " ".join(map(str, base.core.heads)),
    }


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Means over fine-tuning seeds with intervals (Student's t), one row per rate and quantity."""
    rows: list[dict[str, object]] = []
    for rate, runs in table.groupby("minority"):
        for name, most in (("full ID", 1), ("full OOD", 1), ("subnetworks ID", 1), ("subnetworks OOD", 1), ("core", np.inf)):
            mean = mean_over_seeds(runs[name].to_numpy(dtype=np.float64), 0, most)
            rows.append(
                {"minority": rate, "quantity": name, "mean": mean.mean, "low": mean.low, "high": mean.high, "n": mean.n}
            )
        generalized = runs["onset"].dropna()
        rows.append(
            {
                "minority": rate,
                "quantity": "onset",
                "mean": float(generalized.mean()) if len(generalized) else np.nan,
                "low": np.nan,
                "high": np.nan,
                "n": len(generalized),
            }
        )
    return pd.DataFrame(rows)


def dial_figure(table: pd.DataFrame) -> go.Figure:
    """Accuracy, onset and size of the core against the share of heuristic-breaking pairs; a mark is one fine-tuning seed."""
    titles = ("accuracy, mean over cases", f"first checkpoint above {LEVEL:.0%} OOD", "heads in the core")
    drawn = make_subplots(1, 3, subplot_titles=titles, horizontal_spacing=0.08)
    rates = sorted(table["minority"].unique())
    place = {rate: i for i, rate in enumerate(rates)}
    panels = [
        (1, ("full ID", "full OOD", "subnetworks ID", "subnetworks OOD")),
        (2, ("onset",)),
        (3, ("core",)),
    ]
    colours: dict[str, str] = dict(zip(("full ID", "full OOD", "subnetworks ID", "subnetworks OOD"), PALETTE, strict=False))
    for column, names in panels:
        for name in names:
            means = table.groupby("minority")[name].mean()
            colour = colours.get(name, PALETTE[0])
            x = [place[rate] for rate in table["minority"]]
            marks = {"mode": "markers", "marker": {"color": colour, "size": 7, "opacity": 0.6}, "showlegend": False}
            drawn.add_scatter(x=x, y=table[name], **marks, hovertemplate=f"{name}: %{{y}}<extra></extra>", row=1, col=column)
            line = {"color": colour, "width": 2, "dash": "dot" if name.startswith("sub") else "solid"}
            drawn.add_scatter(
                x=[place[rate] for rate in means.index],
                y=means,
                mode="lines",
                line=line,
                name=name,
                showlegend=column == 1,
                connectgaps=True,
                hoverinfo="skip",
                row=1,
                col=column,
            )
    labels = [f"{100 * rate:g} %" for rate in rates]
    drawn.update_xaxes(tickvals=list(place.values()), ticktext=labels, title="pairs that break the heuristic")
    drawn.update_yaxes(rangemode="tozero")
    drawn.update_layout(template=TEMPLATE, height=420, legend={"y": -0.25, "yanchor": "top"}, margin={"b": 90})
    return drawn


def told(table: pd.DataFrame) -> str:
    """The ends of the dial, in a sentence."""
    parts: list[str] = []
    for rate, runs in table.groupby("minority"):
        onsets = runs["onset"].dropna()
        when = f"onset at step {onsets.mean():.0f}" if len(onsets) == len(runs) else f"{len(onsets)} of {len(runs)} generalize"
        parts.append(
            f"{100 * float(str(rate)):g} %: OOD {runs['full OOD'].mean():.1%} (subnetworks "
            f"{runs['subnetworks OOD'].mean():.1%}), {when}, core of {runs['core'].mean():.1f} heads"
        )
    return "; ".join(parts) + "."


def experiment(preset: Preset, places: Places) -> Article:
    """Everything up to the report."""
    chosen = config(preset)
    found = [
        measured(rate, seed, pruned_base(setting, places, sparsities=chosen.sparsities, seeds=chosen.seeds, smallest_core=1))
        for rate, seed, setting in chosen.settings
    ]
    table = pd.DataFrame(found)
    shares = ["minority", "full ID", "full OOD", "subnetworks ID", "subnetworks OOD"]
    section = Section(
        "dial",
        "Generalization, its onset and the core against the share of heuristic-breaking pairs",
        "A mark is one fine-tuning seed, a line the mean over them. Subnetworks: mean over pruning seeds.",
        dial_figure(table),
        shown=[text_table(table, "Every fine-tuned model", labels=2, percent=shares)],
        folded=[
            text_table(with_interval(summary(table), "mean"), "Means over fine-tuning seeds", labels=2, percent=["minority"])
        ],
    )
    return Article(
        title="The minority dial",
        question=QUESTION,
        answer=told(table),
        sections=[section],
        notes=["The embedded grammar; a BERT of 4 layers x 8 heads trained from the same starting weights every time."],
        provenance=versions(),
        config={"sparsities": chosen.sparsities, "seeds": chosen.seeds, "onset level": LEVEL},
    )


if __name__ == "__main__":
    run_experiment("minority_dial", QUESTION, experiment)
