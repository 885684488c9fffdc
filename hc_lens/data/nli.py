"""Natural language inference: MNLI to train on and HANS to generalize to, by hub name or from local files."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import datasets

from hc_lens.data.files import NLI_COLUMNS, Columns, pairs_from_rows
from hc_lens.data.rows import Row, dataset_rows, read_rows
from hc_lens.data.sampling import sample
from hc_lens.data.task import Split, Task
from hc_lens.data.tokenise import progress_in_terminal_only

NLI_LABELS = ("entailment", "neutral", "contradiction")
"""The classes of an NLI task, in the order of MNLI's label codes."""

HANS_LABELS = ("entailment", "non-entailment")
"""The classes HANS is scored in, in the order of its label codes."""

HANS_COLLAPSE = (0, 1, 1)
"""HANS's class for each of `NLI_LABELS`: neutral and contradiction are both non-entailment (The Heuristic Core, section 3)."""

PAPER_CASES: Mapping[str, str] = {
    "SO-Swap": "lexical_overlap_ln_subject-object_swap",
    "Prep": "lexical_overlap_ln_preposition",
    "Embed-If": "constituent_cn_embedded_under_if",
    "Embed-Verb": "constituent_cn_embedded_under_verb",
}
"""The four HANS subcases that The Heuristic Core reports, by the names of its figures."""

PAPER_CASES_GPT2: Mapping[str, tuple[str, ...]] = {
    "Embed-If": ("constituent_cn_embedded_under_if",),
    "OOD-E": ("subsequence_se_relative_clause_on_obj", "constituent_ce_embedded_under_since"),
}
"""What The Heuristic Core reports for GPT-2: one subcase, and two whose answer is entailment, averaged as OOD-E.

`hc_lens.metrics.grouped(evaluation, PAPER_CASES_GPT2)` averages an evaluation table so.
"""

MNLI_HUB = "nyu-mll/multi_nli"
HANS_HUB = "jhu-cogcomp/hans"


def mnli(
    source: Path | str = MNLI_HUB,
    *,
    config: str | None = None,
    ood: Mapping[str, Split] | None = None,
    drop_unlabelled: bool = False,
) -> Task:
    """MNLI with its matched and mismatched development sets, from the Hugging Face hub or a local copy in its layout.

    `source` is a hub name (`nyu-mll/multi_nli`; or `nyu-mll/glue` with `config="mnli"`), a directory in hub format, or a folder
    saved by `datasets`; its splits are `train`, `validation_matched` and `validation_mismatched`. `ood` are the task's
    out-of-domain cases, `hans()` say.

    Raises:
        ValueError: if the source cannot be loaded, or naming the row in which a column or label is wrong.
    """
    splits = {
        name: pairs_from_rows(
            source_rows(source, split, NLI_COLUMNS.names, config),
            source=f"{source} {split}",
            label_names=NLI_LABELS,
            name=name,
            drop_unlabelled=drop_unlabelled,
        )
        for name, split in (
            ("mnli-train", "train"),
            ("mnli-matched", "validation_matched"),
            ("mnli-mismatched", "validation_mismatched"),
        )
    }
    train = splits.pop("mnli-train")
    return Task("mnli", NLI_LABELS, train, splits, {} if ood is None else dict(ood))


def hans(
    source: Path | str = HANS_HUB,
    split: str = "validation",
    *,
    columns: Columns = NLI_COLUMNS,
    per_case: int | None = None,
    seed: int = 0,
) -> dict[str, Split]:
    """HANS by subcase: 30 cases called heuristic + "_" + subcase, such as `lexical_overlap_ln_subject-object_swap`.

    `source` is a hub name, a local file (also the original `heuristics_evaluation_set.txt`, with
    `columns=Columns("sentence1", "sentence2", "gold_label")`), or a directory as for `mnli`; `split` is not used for a file.
    With `per_case`, a seeded sample of that many rows of each case. Each case is scored in `HANS_LABELS` by `HANS_COLLAPSE`.

    Raises:
        FileNotFoundError, ValueError: as `read_pairs`; also for a row without heuristic or subcase.
    """
    by_case: defaultdict[str, list[Row]] = defaultdict(list)
    for row in source_rows(source, split, (*columns.names, "heuristic", "subcase")):
        heuristic, subcase = row.fields["heuristic"], row.fields["subcase"]
        if not (heuristic and subcase):
            raise ValueError(f"{row.where}: heuristic {heuristic!r}, subcase {subcase!r}; HANS rows need both")
        by_case[f"{heuristic}_{subcase}".replace("/", "-")].append(row)
    if not by_case:
        raise ValueError(f"{source} has no rows")
    cases = {
        case: replace(
            pairs_from_rows(rows, source=f"{source} {case}", label_names=HANS_LABELS, name=case, columns=columns),
            collapse=HANS_COLLAPSE,
        )
        for case, rows in sorted(by_case.items())
    }
    return cases if per_case is None else {case: sample(rows, per_case, seed) for case, rows in cases.items()}


def source_rows(source: Path | str, split: str, needed: Sequence[str], config: str | None = None) -> Iterator[Row]:
    """The rows of a local file, of a folder saved by `datasets`, or of a data set by hub name or in hub format.

    Raises:
        ValueError: if the data set cannot be loaded, or lacks a needed column.
    """
    path = Path(source)
    if path.is_file() or (path / "dataset_info.json").is_file():
        return read_rows(path, needed)
    if (path / "dataset_dict.json").is_file():
        return read_rows(path / split, needed)
    try:
        with progress_in_terminal_only():
            data = datasets.load_dataset(str(source), config, split=split)
    except (OSError, ValueError, RuntimeError) as error:  # what hub, cache and builders raise
        raise ValueError(
            f"cannot load split {split!r} of {str(source)!r}, which is no local file and no folder of data files: {error}"
        ) from error
    return dataset_rows(data, needed, f"{source} {split}")
