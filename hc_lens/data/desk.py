"""The NLI task of the desk preset: public NLI samples and a stated share of HANS to train on, without what could leak."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hc_lens.data.files import read_pairs
from hc_lens.data.nli import HANS_LABELS, NLI_LABELS, hans
from hc_lens.data.sampling import hold_out, join, normalised, sample, without_firsts, without_repeats
from hc_lens.data.task import Split, Task

_SOURCES = {
    "mnli": "nli/mnli_train_sample.jsonl.gz",
    "lingnli": "nli/lingnli_train.jsonl.gz",
    "snli": "nli/snli_train_sample.jsonl.gz",
}
_MATCHED = "nli/mnli_dev_matched_gold.jsonl.gz"
_HANS = "hans/{}.jsonl.gz"

HANS_AS_NLI = {"entailment": "entailment", "non-entailment": "neutral"}
"""The three-way label that a HANS training pair gets. None of HANS's non-entailed constructions denies its hypothesis (where
the lawyers believed that the judge slept, he may or may not have slept): of neutral and contradiction, neutral is right."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NliPool:
    """Training pairs of several NLI sets and two in-domain splits whose premises never occur in training.

    `counts` says how many pairs came from each set, and how many were left out why.
    """

    train: Split
    matched: Split
    heldout: Split
    counts: Mapping[str, int]


@dataclass(frozen=True)
class Mixture:
    """A task, and of how many pairs of which kind its training split was made."""

    task: Task
    counts: Mapping[str, int]


def data_folder() -> Path | None:
    """The folder of public corpora that `HC_LENS_DATA` names, for experiments and tests; None if it is not set.

    Raises:
        NotADirectoryError: if it names something else.
    """
    named = os.environ.get("HC_LENS_DATA")
    if not named:
        return None
    if not (folder := Path(named)).is_dir():
        raise NotADirectoryError(f"HC_LENS_DATA={named} is not a folder")
    return folder


def nli_pool(folder: Path, *, heldout_premises: int = 60, seed: int = 0) -> NliPool:
    """The training pool: samples of MNLI and SNLI, and LingNLI (new hypotheses to 5,000 MNLI premises), about 79,000 pairs.

    LingNLI is split by premise: the pairs of `heldout_premises` random premises (about nine each) become an in-domain split,
    and those premises leave the whole pool. Left out as well: pairs whose premise is in MNLI's matched development set, and
    repeats.

    Raises:
        FileNotFoundError, ValueError: as `read_pairs`.
    """
    splits = {name: read_pairs(folder / file, label_names=NLI_LABELS, name=name) for name, file in _SOURCES.items()}
    matched = read_pairs(folder / _MATCHED, label_names=NLI_LABELS, name="mnli-matched")
    read = sum(len(split) for split in splits.values())

    splits["lingnli"], heldout = hold_out(splits["lingnli"], heldout_premises, seed, "lingnli-heldout")
    held = {normalised(text) for text in heldout.first}
    splits = {name: without_firsts(split, held) for name, split in splits.items()}
    kept = sum(len(split) for split in splits.values())

    evaluated = {normalised(text) for text in matched.first}
    splits = {name: without_firsts(split, evaluated) for name, split in splits.items()}
    apart = join(list(splits.values()), "nli-pool")
    train = without_repeats(apart)
    counts = {
        **{name: len(split) for name, split in splits.items()},
        "left_out_heldout_premise": read - kept,
        "left_out_evaluation_premise": kept - len(apart),
        "left_out_repeat": len(apart) - len(train),
    }
    _log.info("training pool of %d pairs: %s", len(train), counts)
    return NliPool(train, matched, heldout, counts)


def desk_mixture(
    folder: Path,
    *,
    hans_share: float,
    seen_subcases: Sequence[str],
    n_id: int = 2000,
    n_ood_per_case: int = 200,
    heldout_premises: int = 60,
    seed: int = 0,
) -> Mixture:
    """The training pool with a minority of HANS pairs, evaluated on MNLI matched, held-out LingNLI and all HANS subcases.

    `hans_share` of the training pairs (0 for none) are HANS *train* pairs of the `seen_subcases`, half of them entailed, evenly
    over the subcases of each label, labelled by `HANS_AS_NLI`; those whose premise is in HANS validation are left out first.
    The other subcases stay out of training. `n_id` matched pairs and `n_ood_per_case` HANS *validation* pairs a subcase are
    seeded samples.

    Raises:
        FileNotFoundError: if a file of the folder is missing.
        ValueError: if the share is outside [0, 1), a subcase is unknown, the seen ones are all of one label, or there are too
            few of their pairs for the share.
    """
    if not 0 <= hans_share < 1:
        raise ValueError(f"hans_share must be in [0, 1), got {hans_share}")
    pool = nli_pool(folder, heldout_premises=heldout_premises, seed=seed)
    validation = hans(folder / _HANS.format("validation"))
    if unknown := sorted(set(seen_subcases) - set(validation)):
        raise ValueError(f"seen_subcases: {unknown} are not HANS subcases; those are {list(validation)}")
    parts, counts = [pool.train], dict(pool.counts)
    if n_hans := round(len(pool.train) * hans_share / (1 - hans_share)):
        evaluated = {normalised(text) for split in validation.values() for text in split.first}
        cases = hans(folder / _HANS.format("train"))
        free = [without_firsts(cases[case], evaluated) for case in dict.fromkeys(seen_subcases)]
        counts["left_out_hans_premise"] = sum(len(cases[split.name]) - len(split) for split in free)
        parts += [
            _as_nli(part)
            for label, n in enumerate((n_hans - n_hans // 2, n_hans // 2))
            for part in _even_sample([split for split in free if split.labels[0] == label], n, HANS_LABELS[label], seed)
        ]
    counts["hans"] = sum(len(part) for part in parts[1:])
    task = Task(
        name=f"nli-pool with {hans_share:g} HANS",
        labels=NLI_LABELS,
        train=join(parts, "train"),
        in_domain={"mnli-matched": sample(pool.matched, n_id, seed), "lingnli-heldout": pool.heldout},
        ood={case: sample(split, n_ood_per_case, seed) for case, split in validation.items()},
    )
    _log.info("training split of %d pairs: %s", len(task.train), counts)
    return Mixture(task, counts)


def _even_sample(splits: Sequence[Split], n: int, label: str, seed: int) -> list[Split]:
    """`n` rows in all, as evenly as can be from each of the splits."""
    if not splits:
        raise ValueError(f"seen_subcases: none is labelled {label}; a minority share of HANS needs subcases of both labels")
    each, rest = divmod(n, len(splits))
    wanted = [each + (i < rest) for i in range(len(splits))]
    for split, n_rows in zip(splits, wanted, strict=True):
        if n_rows > len(split):
            raise ValueError(
                f"hans_share asks for {n_rows} training pairs of {split.name}, which has {len(split)}: lower the share or see "
                "more subcases"
            )
    return [sample(split, n_rows, seed) for split, n_rows in zip(splits, wanted, strict=True) if n_rows]


def _as_nli(split: Split) -> Split:
    """A HANS split with the three-way labels of `HANS_AS_NLI`."""
    codes = [NLI_LABELS.index(HANS_AS_NLI[name]) for name in HANS_LABELS]
    labels = tuple(codes[label] for label in split.labels)
    return replace(split, labels=labels, label_names=NLI_LABELS, collapse=tuple(range(len(NLI_LABELS))))
