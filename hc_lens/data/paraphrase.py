"""Paraphrase detection: QQP to train on and PAWS-QQP to generalize to, by hub name or from local files."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from hc_lens.data.files import Columns, pairs_from_rows
from hc_lens.data.nli import source_rows
from hc_lens.data.sampling import hold_out, normalised
from hc_lens.data.task import Split, Task

QQP_LABELS = ("not_duplicate", "duplicate")
"""The classes of QQP and PAWS, in the order of their label codes."""

QQP_HUB = "nyu-mll/glue"
QQP_COLUMNS = Columns("question1", "question2", "label")
"""The column names of QQP in GLUE."""

PAWS_COLUMNS = Columns("sentence1", "sentence2", "label")
"""The column names of PAWS."""

ADVERSARIAL = "paws-adversarial"
"""The case that The Heuristic Core reports: the PAWS-QQP pairs of label 0, which share their words but not their meaning."""

_log = logging.getLogger(__name__)


def qqp(
    source: Path | str = QQP_HUB,
    *,
    config: str | None = None,
    ood: Mapping[str, Split] | None = None,
    columns: Columns = QQP_COLUMNS,
    drop_unlabelled: bool = False,
) -> Task:
    """QQP with its validation set, from the Hugging Face hub (GLUE's copy) or a local copy in its layout.

    `source` is a hub name (for `nyu-mll/glue`, `config` is "qqp" unless given), a directory in hub format, or a folder saved by
    `datasets`, with the splits `train` and `validation`. Training pairs that are also in an out-of-domain case are left out and
    counted in the log (`without_pairs`).

    Raises:
        ValueError: if the source cannot be loaded, or naming the row in which a column or label is wrong.
    """
    chosen = "qqp" if config is None and str(source) == QQP_HUB else config
    train, validation = (
        pairs_from_rows(
            source_rows(source, split, columns.names, chosen),
            source=f"{source} {split}",
            label_names=QQP_LABELS,
            name=name,
            columns=columns,
            drop_unlabelled=drop_unlabelled,
        )
        for name, split in (("qqp-train", "train"), ("qqp", "validation"))
    )
    cases = {} if ood is None else dict(ood)
    return Task("qqp", QQP_LABELS, without_pairs(train, list(cases.values())), {"qqp": validation}, cases)


def qqp_pool(
    source: Path | str, *, ood: Mapping[str, Split], held_out: int = 2_000, columns: Columns = PAWS_COLUMNS, seed: int = 0
) -> Task:
    """QQP from one local file of pairs, of which all pairs of `held_out` random first questions become the in-domain case.

    No first question is on both sides. Training pairs that are also in an out-of-domain case are left out, as in `qqp`.

    Raises:
        FileNotFoundError, ValueError: as `read_pairs`; also unless both sides get at least one first question.
    """
    rows = source_rows(source, "train", columns.names)
    pool = pairs_from_rows(rows, source=str(source), label_names=QQP_LABELS, name="qqp-train", columns=columns)
    train, validation = hold_out(pool, held_out, seed, "qqp")
    return Task("qqp-pool", QQP_LABELS, without_pairs(train, list(ood.values())), {"qqp": validation}, dict(ood))


def paws_qqp(source: Path | str, split: str = "test", *, columns: Columns = PAWS_COLUMNS) -> dict[str, Split]:
    """PAWS-QQP in two cases: `paws-adversarial` (label 0, the paper's) and `paws-duplicate` (label 1).

    The two are kept apart because a model that calls every pair a duplicate is right on one and wrong on the other. `source` is
    a local file, a folder or a hub name, as for `hans`: PAWS-QQP itself is on no hub (its licence asks each user to generate
    it), PAWS-Wiki (`google-research-datasets/paws`) has the same columns.

    Raises:
        FileNotFoundError, ValueError: as `read_pairs`; also if a label has no rows.
    """
    rows = source_rows(source, split, columns.names)
    pairs = pairs_from_rows(rows, source=str(source), label_names=QQP_LABELS, name="paws", columns=columns)
    return {
        name: pairs.take([i for i, label in enumerate(pairs.labels) if label == code], name)
        for code, name in enumerate((ADVERSARIAL, "paws-duplicate"))
    }


def without_pairs(train: Split, evaluated: Sequence[Split]) -> Split:
    """The training pairs that are in none of the evaluated splits; how many were left out is logged.

    Two pairs are the same if their letters and digits are, in either order of the sentences: PAWS is tokenised (`I 'm`) and
    swaps the questions of some pairs of QQP.
    """
    leaks = {key for split in evaluated for key in map(_pair, split.first, split.second)}
    kept = [i for i, key in enumerate(map(_pair, train.first, train.second)) if key not in leaks]
    if n_left_out := len(train) - len(kept):
        _log.warning(
            "%s: left out %d of %d training pairs that are also evaluated on (%s)",
            train.name,
            n_left_out,
            len(train),
            ", ".join(split.name for split in evaluated),
        )
    return train.take(kept)


def _pair(first: str, second: str) -> frozenset[str]:
    return frozenset("".join(filter(str.isalnum, normalised(text))) for text in (first, second))
