"""Data sets on disk as the Hugging Face hub lays them out, and as `datasets` caches them under their hub name."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import datasets

Columns = Mapping[str, Sequence[object]]

MNLI_NAMES = ("entailment", "neutral", "contradiction")
MNLI: dict[str, Columns] = {
    "train": {"premise": ["p1", "p2", "p3"], "hypothesis": ["h1", "h2", "h3"], "label": [0, 1, 2]},
    "validation_matched": {"premise": ["p4"], "hypothesis": ["h4"], "label": [2]},
    "validation_mismatched": {"premise": ["p5", "p6"], "hypothesis": ["h5", "h6"], "label": [1, 0]},
}
HANS_NAMES = ("entailment", "non-entailment")
_CASES = (("lexical_overlap", "ln_subject/object_swap", 1), ("constituent", "ce_adverb", 0))
HANS: dict[str, Columns] = {
    split: {
        "premise": [f"{split} premise {i} {subcase}" for _, subcase, _ in _CASES for i in range(5)],
        "hypothesis": [f"hypothesis {i} {subcase}" for _, subcase, _ in _CASES for i in range(5)],
        "label": [label for _, _, label in _CASES for _ in range(5)],
        "heuristic": [heuristic for heuristic, _, _ in _CASES for _ in range(5)],
        "subcase": [subcase for _, subcase, _ in _CASES for _ in range(5)],
    }
    for split in ("train", "validation")
}


def rows(columns: Columns, names: Sequence[str]) -> datasets.Dataset:
    """The columns as a data set whose label codes carry these names."""
    made = datasets.Dataset.from_dict(dict(columns))
    return made.cast_column("label", datasets.ClassLabel(names=list(names)))


def hub_folder(folder: Path, splits: Mapping[str, Columns], names: Sequence[str], config: str = "default") -> Path:
    """A data set repository: Parquet files, and a README that says which file is which split."""
    lines = ["---", "configs:", f"- config_name: {config}", "  data_files:"]
    for split, columns in splits.items():
        file = folder / config / f"{split}-00000-of-00001.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        rows(columns, names).to_parquet(file)
        lines += [f"  - split: {split}", f"    path: {config}/{split}-*"]
    (folder / "README.md").write_text("\n".join([*lines, "---", ""]))
    return folder


def cache_under_hub_name(name: str, splits: Mapping[str, Columns], names: Sequence[str], cache: Path, scratch: Path) -> None:
    """Put a data set into the cache of `datasets` as if it had been downloaded from the hub as `name`."""
    owner, repository = name.split("/")
    folder = hub_folder(scratch / repository, splits, names)
    datasets.load_dataset(str(folder), cache_dir=str(scratch / "built"))
    (built,) = (info.parent for info in (scratch / "built" / repository).rglob("dataset_info.json"))
    shutil.copytree(built, cache / f"{owner}___{repository}" / "default" / "0.0.0" / ("a" * 40))
