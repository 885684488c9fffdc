"""Do subnetworks of one fine-tuned model that agree in-domain generalize alike, and what do they share?

The main line of The Heuristic Core (Bhaskar, Friedman and Chen, ACL 2024) on three scales:

- `smoke`: the embedded grammar, minimal; seconds. It checks the machinery, not the claim.
- `desk`: MiniLM fine-tuned on public NLI samples in `$HC_LENS_DATA` with a stated share of HANS training pairs, 12 seeds at two
  sparsities; about an hour on two CPU cores. Also the same model fine-tuned without HANS.
- `paper`: bert-base-cased, MNLI and HANS from the hub, every published setting; for a GPU.

HANS's training file has the subcases of its validation file. Pairs of `SEEN` subcases, of both labels, are mixed in; every
other subcase is out of training whole, and the report gives seen and unseen subcases apart.

Run: `python -m experiments.subnetworks_generalize_differently --preset desk`; the same command resumes. Parts of a preset can
run at the same time: `--only nli-without-hans`.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pandas as pd
import torch
import tyro

from experiments.shared.base import SMOKE_SEEDS, SMOKE_SPARSITIES, study, study_config
from experiments.shared.command import Arguments, Places, places_of
from experiments.shared.settings import SEEN, Preset, Setting, nli_desk, nli_paper, smoke
from hc_lens.study import Study, StudyConfig


@dataclass(frozen=True)
class Part:
    """One study of the experiment: its setting, and what to do with it."""

    setting: Setting
    config: StudyConfig
    title: str
    seen: tuple[str, ...] = ()


def parts(preset: Preset) -> list[Part]:
    """The studies at each scale."""
    if preset == "smoke":
        setting = smoke()
        config = study_config(setting, sparsities=SMOKE_SPARSITIES, seeds=SMOKE_SEEDS, ablation_rows=20, controls=3)
        return [Part(setting, config, "Smoke run: subnetworks and their heuristic core")]
    if preset == "desk":
        with_hans, without = nli_desk(), nli_desk(hans_share=0.0)
        short = study_config(without, sparsities=(0.5,), seeds=(42, 43, 44))
        return [
            Part(with_hans, study_config(with_hans), "Desk run: MiniLM on NLI with a minority of HANS", SEEN),
            Part(without, short, "Desk run: MiniLM on NLI without HANS"),
        ]
    paper = nli_paper()
    return [Part(paper, study_config(paper, ablation_rows=None), "The Heuristic Core: bert-base-cased on MNLI, HANS")]


@dataclass(frozen=True)
class PartArguments(Arguments):
    """Run the main line and write its reports."""

    only: str | None = None
    """One part of the preset, such as nli-without-hans."""


def seen_and_unseen(evaluation: pd.DataFrame, seen: Collection[str]) -> pd.DataFrame:
    """Accuracy on non-entailed and entailed HANS subcases, seen in training or not: full model, and mean and range over seeds.

    Columns: `subcases` (which kind), `model` ("full", or the target sparsity), `mean`, `min` and `max` over seeds of the
    accuracy averaged over the kind's cases, and `cases` (how many those are).
    """
    ood = evaluation[evaluation["group"] == "OOD"].copy()
    label = ood["case"].str.contains(r"_[lsc]n_").map({True: "non-entailed", False: "entailed"})
    ood["subcases"] = label + ood["case"].isin(list(seen)).map({True: ", seen in training", False: ", unseen"})
    full = ood["subnetwork"] == "full"
    ood["model"] = [
        ("full" if is_full else f"sparsity {target:g}") for is_full, target in zip(full, ood["target"], strict=True)
    ]
    per_seed = ood.groupby(["subcases", "model", "subnetwork"])["accuracy"].agg(["mean", "size"]).reset_index()
    table = per_seed.groupby(["subcases", "model"])["mean"].agg(["mean", "min", "max"])
    cases = per_seed.groupby(["subcases", "model"])["size"].first()
    return table.assign(cases=cases).reset_index()


def sentences(table: pd.DataFrame) -> list[str]:
    """The table of `seen_and_unseen` as one sentence per kind of subcase, for the report."""
    found: list[str] = []
    for kind, rows in table.groupby("subcases"):
        parts = [
            f"{row.model} {row.mean:.1%}" + ("" if row.model == "full" else f" ({row.min:.1%} to {row.max:.1%} over seeds)")
            for row in rows.itertuples()
        ]
        found.append(f"HANS, {kind} ({rows['cases'].iloc[0]} subcases): {'; '.join(parts)}.")
    return found


def run(part: Part, places: Places) -> Study:
    """Run one part; the report's notes get the accuracies on seen and unseen subcases."""
    told = part.setting.notes

    def notes(evaluation: pd.DataFrame) -> Sequence[str]:
        has_hans = evaluation["case"].str.contains(r"_[lsc]n_").any()
        return [*told, *(sentences(seen_and_unseen(evaluation, part.seen)) if has_hans else ())]

    return study(part.setting, part.config, places, title=part.title, notes=notes)


def main() -> None:
    """Run every part of the chosen preset."""
    args = tyro.cli(PartArguments, description=__doc__)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    chosen = [part for part in parts(args.preset) if args.only in (None, part.setting.name)]
    if not chosen:
        names = ", ".join(part.setting.name for part in parts(args.preset))
        raise SystemExit(f"--only {args.only}: preset {args.preset} has the parts {names}")
    places = places_of(args, "subnetworks_generalize_differently")
    for part in chosen:
        done = run(part, places)
        print(f"{part.setting.name}: {done.headline}\n  report: {done.report}")


if __name__ == "__main__":
    main()
