"""The results that The Heuristic Core released, as the tables that our analyses take.

Bhaskar, Friedman and Chen (ACL 2024; arXiv 2403.03942); the files are `mnli-*.json` of github.com/princeton-nlp/Heuristic-Core.
Every reader returns one row per (step,) model and case, sparsities as shares (0.25 for their "25"):

| column          | meaning                                                                                          |
|-----------------|--------------------------------------------------------------------------------------------------|
| `step`          | fine-tuning step of the model that was pruned (only where the file has several)                  |
| `subnetwork`    | "full", or "seed 42"                                                                             |
| `seed`, `target`| of the pruning run; missing for the full model                                                   |
| `case`, `group` | the case as the file calls it, and "ID" or "OOD"                                                 |
| `accuracy`      | 0..1; missing for a run that failed                                                              |
| `failed`        | the file says that the run failed (-1), and the reader was asked to keep that: see `Failures`    |

The entries "5" of the sweep and of the grid are really runs at 50 %: they are left out, never relabelled.
"""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Literal, cast

import pandas as pd

from hc_lens.json_text import parse_json

Failures = Literal["missing", "failed"]
"""What a released accuracy of -1 is read as: a missing run, like one never started, or one that is known to have failed.

Only the as-coded effective size makes a difference between them: its authors' script counted -1 as unfaithful."""

IN_DOMAIN = frozenset({"validation_matched", "validation_mismatched", "mnli-matched", "mnli-mismatched"})
"""The released files' in-domain cases; all others are HANS."""

_MISLABELLED = "5"
_FULL_MODEL = "0"
_FAILED = -1


def published_training(file: Path, *, in_domain: Collection[str] = IN_DOMAIN) -> pd.DataFrame:
    """The full model over fine-tuning (`mnli-acc_over_ft.json`: step -> case -> accuracy), as "full" rows with their `step`.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is not such an object of accuracies, naming file and field.
    """
    rows = [
        _row(case, accuracy, in_domain, step=_number(file, keys, 0))
        for keys, accuracy in _leaves(file, ("step", "case"))
        for case in keys[-1:]
    ]
    return _table(file, rows)


def published_grid(file: Path, *, failures: Failures = "missing", in_domain: Collection[str] = IN_DOMAIN) -> pd.DataFrame:
    """Every checkpoint pruned at every sparsity (`mnli-sparsity-grid-acc.json`: seed -> step -> sparsity -> case -> accuracy).

    The full model of each checkpoint is in another file: see `published_training`.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is not such an object of accuracies, naming file and field.
    """
    rows = [
        _row(
            keys[3],
            accuracy,
            in_domain,
            failures,
            seed=_number(file, keys, 0),
            step=_number(file, keys, 1),
            target=_target(file, keys, 2),
        )
        for keys, accuracy in _leaves(file, ("seed", "step", "sparsity", "case"))
        if keys[2] != _MISLABELLED
    ]
    return _table(file, rows)


def published_sweep(file: Path, *, failures: Failures = "missing", in_domain: Collection[str] = IN_DOMAIN) -> pd.DataFrame:
    """The final model pruned at every sparsity (`mnli-acc_vs_sparsity.json`: seed -> sparsity -> case -> accuracy).

    The entry "0" is the full model; it is the same under every seed, and its rows come once.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is not such an object of accuracies, or its seeds disagree about the full model; naming file
            and field.
    """
    rows: list[dict[str, object]] = []
    full: dict[str, float] = {}
    for keys, accuracy in _leaves(file, ("seed", "sparsity", "case")):
        _, sparsity, case = keys
        if sparsity == _FULL_MODEL:
            if case not in full:
                rows.append(_row(case, accuracy, in_domain))
            if full.setdefault(case, accuracy) != accuracy:
                raise ValueError(
                    f"{file}: {_path(keys)}: the full model's accuracy is {accuracy}, another seed has {full[case]}"
                )
        elif sparsity != _MISLABELLED:
            seed, target = _number(file, keys, 0), _target(file, keys, 1)
            rows.append(_row(case, accuracy, in_domain, failures, seed=seed, target=target))
    return _table(file, rows)


def published_subnetworks(file: Path, target: float, *, in_domain: Collection[str] = IN_DOMAIN) -> pd.DataFrame:
    """Twelve subnetworks of one sparsity (`mnli-sp50.json`: a list per column), with the realised `sparsity` of each.

    The file's `seed` is "original" for the full model; its other columns but `sparsity` are cases. `target` is the sparsity
    that was asked for, which the file does not hold.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is not such an object of lists of equal length, naming file and field.
    """
    columns = _object(file, _parsed(file), "the file")
    for name in ("seed", "sparsity"):
        if name not in columns:
            raise ValueError(f"{file}: no field {name!r}; it has {sorted(columns)}")
    seeds = _list(file, "seed", columns["seed"], None)
    sparsities = [
        _share(file, ("sparsity", str(i)), value)
        for i, value in enumerate(_list(file, "sparsity", columns["sparsity"], len(seeds)))
    ]
    rows: list[dict[str, object]] = []
    for case in (name for name in columns if name not in ("seed", "sparsity")):
        for i, accuracy in enumerate(_list(file, case, columns[case], len(seeds))):
            value = _accuracy(file, (case, str(i)), accuracy)
            if seeds[i] == "original":
                rows.append(_row(case, value, in_domain) | {"sparsity": 0.0})
            else:
                seed = _number(file, (f"seed {i}", str(seeds[i])), 1)
                rows.append(_row(case, value, in_domain, seed=seed, target=target) | {"sparsity": sparsities[i]})
    return _table(file, rows)


def _row(
    case: str, accuracy: float, in_domain: Collection[str], failures: Failures = "missing", **keys: int | float
) -> dict[str, object]:
    failed = accuracy == _FAILED
    return {
        **({"step": keys["step"]} if "step" in keys else {}),
        "subnetwork": f"seed {keys['seed']}" if "seed" in keys else "full",
        "seed": keys.get("seed"),
        "target": keys.get("target"),
        "case": case,
        "group": "ID" if case in in_domain else "OOD",
        "accuracy": float("nan") if failed else accuracy,
        "failed": failed and failures == "failed",
    }


def _table(file: Path, rows: Sequence[dict[str, object]]) -> pd.DataFrame:
    if not rows:
        raise ValueError(f"{file}: it holds no accuracies")
    return pd.DataFrame(rows).astype({"seed": "Int64", "target": "float64"})


def _leaves(file: Path, names: Sequence[str]) -> Iterator[tuple[tuple[str, ...], float]]:
    """The accuracies of objects nested by these names, each with the keys that lead to it."""

    def walk(value: object, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], float]]:
        if len(keys) == len(names):
            yield keys, _accuracy(file, keys, value)
            return
        for key, inner in _object(file, value, _path(keys) or "the file", names[len(keys)]).items():
            yield from walk(inner, (*keys, key))

    yield from walk(_parsed(file), ())


def _parsed(file: Path) -> object:
    try:
        return parse_json(file.read_text(encoding="utf-8-sig"))
    except ValueError as error:  # of the decoder or of JSON
        raise ValueError(f"{file}: not a JSON file: {error}") from None


def _object(file: Path, value: object, field: str, by: str = "column") -> dict[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"{file}: {field}: expected an object by {by}, got {_told(value)}")
    return cast("dict[str, object]", value)


def _list(file: Path, field: str, value: object, length: int | None) -> list[object]:
    if not isinstance(value, list):
        raise ValueError(f"{file}: {field}: expected a list, got {_told(value)}")
    found = cast("list[object]", value)
    if length is not None and len(found) != length:
        raise ValueError(f"{file}: {field}: {len(found)} values, but seed has {length}")
    return found


def _accuracy(file: Path, keys: Sequence[str], value: object) -> float:
    return float(_FAILED) if value == _FAILED else _share(file, keys, value, ", or -1 for a failed run")


def _share(file: Path, keys: Sequence[str], value: object, others: str = "") -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    raise ValueError(f"{file}: {_path(keys)}: expected a number in 0..1{others}; got {_told(value)}")


def _number(file: Path, keys: Sequence[str], index: int) -> int:
    if not keys[index].isdecimal():
        raise ValueError(f"{file}: {_path(keys[: index + 1])}: expected a whole number, got {keys[index]!r}")
    return int(keys[index])


def _target(file: Path, keys: Sequence[str], index: int) -> float:
    percent = _number(file, keys, index)
    if not 0 < percent < 100:
        raise ValueError(f"{file}: {_path(keys[: index + 1])}: a sparsity is above 0 and below 100 %, got {percent}")
    return percent / 100


def _path(keys: Sequence[str]) -> str:
    return " > ".join(keys)


def _told(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
