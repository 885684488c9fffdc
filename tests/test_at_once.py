"""Two processes that ask the same run for tables at once: one waits for the other, or both find the same."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from hc_lens import analysis, metrics
from hc_lens.cache import read, remembered_tables
from hc_lens.data import Task, synthetic_nli
from hc_lens.models import Classifier
from hc_lens.pruning import PruneConfig, evaluate_into, evaluation, means_into, open_pruned, prune_into
from hc_lens.questions import Ablation, Attention, Pairs
from hc_lens.questions.kept_core import core_into
from hc_lens.questions.page import run_article
from hc_lens.runs import Run
from hc_lens.sample import Sample
from hc_lens.study import embedded_model
from hc_lens.units import Head
from tests.asking import opened

HEADS = (Head(0, 1), Head(1, 2))
_MAKING = threading.Lock()


@pytest.fixture(scope="module")
def task() -> Task:
    return synthetic_nli(n_train=60, n_id=6, n_ood_per_case=2)


@pytest.fixture(scope="module")
def directory(task: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pruned")
    model = embedded_model()
    means = means_into(root / "means", model, task.train, rows=10, max_length=32)
    config = replace(PruneConfig.desk(0.5, steps=4), batch_size=4, gate_std=2.0, max_length=32)
    prune_into(root / "pruned", model, task.train, means, config, [42, 43])
    return root / "pruned"


def together(*acts: Callable[[], object]) -> list[object]:
    """What each gives, all begun at once."""
    found: list[object] = [None] * len(acts)
    start = threading.Barrier(len(acts))

    def run(place: int) -> None:
        start.wait()
        try:
            found[place] = acts[place]()
        except Exception as error:
            found[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in found:
        if isinstance(each, Exception):
            raise each
    return found


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The computations that were begun."""
    begun: list[str] = []
    for module, name in ((metrics, "evaluate"), (analysis, "ablate"), (analysis, "attention_scores")):
        original = getattr(module, name)

        def noted(*args: object, name: str = name, original: Callable[..., object] = original, **options: object) -> object:
            begun.append(name)
            return original(*args, **options)

        monkeypatch.setattr(module, name, noted)
    return begun


def embedded() -> Classifier:
    """The model, which threads must not make side by side: its first weights are drawn from torch's one random state."""
    with _MAKING:
        return embedded_model()


def evaluated(directory: Path, task: Task, rows: int = 2) -> pd.DataFrame:
    return evaluate_into(open_pruned(directory), embedded(), task, sample=Sample(rows))


def ablated(directory: Path, task: Task, rows: int = 2) -> tuple[pd.DataFrame, pd.DataFrame]:
    found = opened(open_pruned(directory), embedded(), task).ask(Ablation(HEADS, 2), Sample(rows))
    return found["effects"], found["additivity"]


def interacting(directory: Path, task: Task, rows: int = 2) -> tuple[pd.DataFrame, pd.DataFrame]:
    found = opened(open_pruned(directory), embedded(), task).ask(Pairs(HEADS, 2), Sample(rows))
    return found["interactions"], found["domains"]


def attended(directory: Path, task: Task, rows: int = 2) -> tuple[pd.DataFrame, ...]:
    return tuple(opened(open_pruned(directory), embedded(), task).ask(Attention(HEADS), Sample(rows)).tables.values())


@pytest.mark.parametrize(
    ("ask", "expected"),
    [(evaluated, ["evaluate"]), (ablated, ["ablate"] * 2), (interacting, ["ablate"] * 2), (attended, ["attention_scores"])],
)
def test_the_same_is_computed_once_and_both_get_it(
    ask: Callable[[Path, Task], object], expected: list[str], directory: Path, task: Task, calls: list[str]
) -> None:
    for file in (*directory.rglob("*.options.json"), *directory.glob("*.safetensors")):
        file.unlink()
    first, second = together(lambda: ask(directory, task), lambda: ask(directory, task))
    assert calls == expected
    for one, other in zip(*(each if isinstance(each, tuple) else (each,) for each in (first, second)), strict=True):
        pd.testing.assert_frame_equal(one, other, check_exact=True)


def test_who_asks_for_other_rows_gets_those(directory: Path, task: Task) -> None:
    alone = {rows: evaluated(directory, task, rows) for rows in (1, 2)}
    found = together(*(lambda rows=rows: evaluated(directory, task, rows) for rows in (1, 2, 1)))
    for rows, table in zip((1, 2, 1), found, strict=True):
        pd.testing.assert_frame_equal(table, alone[rows], check_exact=True)  # type: ignore[arg-type]


def test_the_full_models_table_stays_while_others_read_it(directory: Path, task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers evaluate different seeds of one run at once, each with the full model."""
    shutil.rmtree(directory / "evaluation", ignore_errors=True)
    stored: list[str] = []
    store = evaluation.store

    def noted(run: Run, options: Mapping[str, object], tables: Mapping[str, pd.DataFrame]) -> None:
        stored.extend(tables)
        store(run, options, tables)

    monkeypatch.setattr(evaluation, "store", noted)
    for seed in (42, 43):
        evaluate_into(open_pruned(directory, seeds=[seed]), embedded_model(), task, sample=Sample(2))
    assert stored == ["evaluation/full", "evaluation/seed-42", "evaluation/seed-43"]


def test_a_report_shows_one_ablation_while_others_are_made(directory: Path, task: Task) -> None:
    pruned = open_pruned(directory)
    evaluate_into(pruned, embedded(), task, sample=Sample(2))
    core_into([pruned], k=1, permutations=10)
    ablated(directory, task)

    def report() -> int:
        return len(run_article(opened(pruned, embedded(), task), title="t").sections)

    reports = together(report, lambda: core_into([pruned], k=1, permutations=10), lambda: ablated(directory, task, 1), report)
    assert reports[0] == reports[3]


def test_tables_that_belong_together_are_never_read_apart(tmp_path: Path) -> None:
    """A writer changes both tables over and over; a reader without a lock sees either none or a pair of one writing."""
    run, stop = Run.create(tmp_path, "prune", {}), threading.Event()

    def writing() -> None:
        for i in range(20):
            tables = {name: pd.DataFrame({"value": [i]}) for name in ("one", "other")}
            remembered_tables(run, ("one", "other"), {"i": i}, lambda tables=tables: tables)
        stop.set()

    def reading() -> int:
        seen = 0
        while not stop.is_set():
            if (found := read(run, "one", "other")) is not None:
                options, (one, other) = found
                assert options == {"i": int(one["value"][0])} == {"i": int(other["value"][0])}
                seen += 1
            time.sleep(0.002)  # the writer needs the interpreter, too
        return seen

    assert together(writing, reading)[1]


def test_a_missing_table_of_several_is_made_again(directory: Path, task: Task) -> None:
    before = attended(directory, task)
    for name in ("profiles", "attention", "attention_groups"):
        (directory / f"{name}.parquet").unlink()
        for one, other in zip(before, attended(directory, task), strict=True):
            pd.testing.assert_frame_equal(one, other, check_exact=True)
