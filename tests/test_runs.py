"""Run directories: whole files or none, one run per specification, one process per run, and errors that name the file."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hc_lens import atomic
from hc_lens.runs import BusyError, Run, RunError, atomic_path, code_version, digest, provenance

SPEC = {"config": {"steps": 300, "lr": 2e-5, "betas": (0.9, 0.999)}, "model": "m", "data": "d"}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path, "finetune", SPEC)


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


# --- specification and digest


@given(json_values)
@settings(max_examples=60)
def test_digest_survives_json_and_key_order(value: object) -> None:
    reordered = json.loads(json.dumps(value), object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    assert digest(value) == digest(reordered)


def test_digest_tells_values_apart_that_print_alike() -> None:
    values: list[object] = [1, 1.0, "1", True, None, [1], {"1": 1}, 0.1, 0.1 + 1e-17 * 2, 0.30000000000000004, 0.3]
    assert len({digest(value) for value in values}) == len({repr(value) for value in values})


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"config": {"lr": float("nan")}}, r"spec\.config\.lr is nan"),
        ({"config": {"lr": [1.0, float("inf")]}}, r"spec\.config\.lr\[1\] is inf"),
        ({"config": {3: 1}}, r"spec\.config has the key 3"),
        ({"path": Path("x")}, r"spec\.path is a PosixPath"),
        ({"n": np.int64(3)}, r"spec\.n is a int64"),
    ],
)
def test_spec_that_is_not_json_is_refused_by_key(spec: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        Run.create(tmp_path, "prune", spec)
    assert not list(tmp_path.iterdir())


def test_create_gives_one_directory_per_spec_and_kind(tmp_path: Path) -> None:
    first = Run.create(tmp_path, "prune", SPEC)
    assert Run.create(tmp_path, "prune", dict(reversed(SPEC.items()))).path == first.path
    assert first.path.name == f"prune-{digest(SPEC)[:12]}"
    assert Run.create(tmp_path, "finetune", SPEC).path != first.path
    assert Run.create(tmp_path, "prune", {**SPEC, "data": "e"}).path != first.path
    assert len(list(tmp_path.iterdir())) == 3


def test_open_gives_back_what_was_created(run: Run) -> None:
    opened = Run.open(run.path)
    assert opened == run
    assert opened.kind == "finetune"
    assert opened.digest == digest(SPEC)
    assert opened.provenance["torch"] == torch.__version__


def test_reopening_under_other_versions_warns_until_finished(run: Run) -> None:
    record = json.loads((run.path / "run.json").read_text())
    record["provenance"]["torch"] = "1.0"
    (run.path / "run.json").write_text(json.dumps(record))
    with pytest.warns(UserWarning, match=r"will not be bit-equal: torch 1\.0 then"):
        Run.at(run.path, "finetune", SPEC)
    run.finish()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Run.at(run.path, "finetune", SPEC)


def test_reopening_a_finished_run_of_other_code_warns_in_one_line(run: Run) -> None:
    record = json.loads((run.path / "run.json").read_text())
    record["provenance"]["code"] = "0" * 64
    (run.path / "run.json").write_text(json.dumps(record))
    run.finish()
    says = rf"^{run.path} was computed by another version of the code; choose another --out to recompute$"
    with pytest.warns(UserWarning, match=says):
        Run.at(run.path, "finetune", SPEC)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU to name")
def test_provenance_names_no_gpu_where_there_is_none() -> None:
    assert provenance()["gpu"] == "none"


def test_provenance_names_what_a_result_depends_on() -> None:
    found = provenance()
    assert found["threads"] == torch.get_num_threads()
    assert found["code"] == code_version()
    assert len(code_version()) == 64
    assert {"hc_lens", "python", "torch", "transformer-lens", "transformers", "gpu", "machine", "date"} <= set(found)


# --- directories that are not this run


def test_at_refuses_another_specification_and_names_the_fields(tmp_path: Path) -> None:
    Run.at(tmp_path / "out", "finetune", SPEC)
    other = {**SPEC, "config": {**SPEC["config"], "steps": 600}, "extra": 1}  # type: ignore[dict-item]
    with pytest.raises(
        RunError, match=r"out holds a run with another spec.*config\.steps is 300 there, 600 asked; extra is 'absent'"
    ):
        Run.at(tmp_path / "out", "finetune", other)
    with pytest.raises(RunError, match="holds a 'finetune' run, not a 'prune' run"):
        Run.at(tmp_path / "out", "prune", SPEC)


def test_at_takes_an_empty_directory_and_refuses_foreign_files(tmp_path: Path) -> None:
    assert Run.at(tmp_path, "prune", SPEC).path == tmp_path
    foreign = tmp_path / "thesis"
    foreign.mkdir()
    (foreign / "chapter.tex").write_text("precious")
    with pytest.raises(RunError, match=r"thesis is not a run directory.*holds 'chapter\.tex'"):
        Run.at(foreign, "prune", SPEC)
    assert [f.name for f in foreign.iterdir()] == ["chapter.tex"]
    with pytest.raises(RunError, match=r"chapter\.tex is a file"):
        Run.at(foreign / "chapter.tex", "prune", SPEC)


def test_at_takes_what_a_creation_killed_half_way_left(tmp_path: Path) -> None:
    (tmp_path / ".run.json.0123abcd.tmp").write_text('{"form')
    os.utime(tmp_path / ".run.json.0123abcd.tmp", (0, 0))
    run = Run.at(tmp_path, "prune", SPEC)
    with run.locked():
        pass
    assert {f.name for f in tmp_path.iterdir()} - {".lock"} == {"run.json"}


def edited(change: Callable[[dict[str, object]], object]) -> Callable[[str], str]:
    def apply(text: str) -> str:
        record = json.loads(text)
        change(record)
        return json.dumps(record)

    return apply


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[: len(text) // 2], r"run\.json is not a whole JSON file"),
        (lambda text: "", r"run\.json is not a whole JSON file"),
        (lambda text: "[1, 2]", r"run\.json is not of this program: it holds a list"),
        (lambda text: '{"name": "somebody else\'s"}', r"run\.json is not of this program: it has no 'format'"),
        (edited(lambda r: r.update(format=2)), r"run\.json has format 2"),
        (edited(lambda r: r["spec"].update(model="n")), r"run\.json was edited: its spec has digest"),  # type: ignore[attr-defined]
        (edited(lambda r: r.update(spec=[1])), r"run\.json: kind must be a text and spec an object"),
    ],
)
def test_damaged_run_json_is_named(damage: Callable[[str], str], message: str, run: Run) -> None:
    file = run.path / "run.json"
    file.write_text(damage(file.read_text()))
    with pytest.raises(RunError, match=message):
        Run.open(run.path)
    with pytest.raises(RunError, match=message):
        Run.at(run.path, "finetune", SPEC)


def test_open_of_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="nowhere is not a directory"):
        Run.open(tmp_path / "nowhere")
    with pytest.raises(RunError, match=r"is not a run directory: it has no run\.json"):
        Run.open(tmp_path)


# --- values


@given(value=json_values)
@settings(max_examples=40)
def test_json_round_trip(value: object, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.getbasetemp() / "value.json"
    atomic.write_json(file, value)
    assert atomic.read_json(file) == value


def test_tensors_round_trip_bit_for_bit_with_metadata(run: Run) -> None:
    base = torch.randn(4, 6)
    tensors = {
        "transposed": base.T,
        "row": base[1],
        "half": base.bfloat16(),
        "mask": base > 0,
        "shared": base,
        "also shared": base,
        "scalar": torch.tensor(3),
        "empty": torch.zeros(0, 2),
    }
    run.write_tensors("weights/all", tensors, {"seed": "42"})
    back = run.read_tensors("weights/all")
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert back[name].dtype == tensor.dtype
        assert torch.equal(back[name], tensor)
    assert run.read_metadata("weights/all") == {"seed": "42"}


def test_a_row_of_a_large_tensor_takes_a_rows_space(run: Run) -> None:
    run.write_tensors("row", {"row": torch.zeros(1000, 1000)[0]})
    assert (run.path / "row.safetensors").stat().st_size < 5000


def test_table_round_trip_keeps_types_and_index(run: Run) -> None:
    table = pd.DataFrame(
        {
            "case": pd.Categorical(["ID", "OOD", "ID"]),
            "name": ["a", None, "c"],
            "n": [1, 2, 3],
            "seed": pd.array([1, None, 3], dtype="Int64"),
            "accuracy": [0.1, np.nan, 1 / 3],
            "kept": [True, False, True],
        },
        index=pd.Index(["x", "y", "z"], name="subnetwork"),
    )
    run.write_table("scores", table)
    pd.testing.assert_frame_equal(run.read_table("scores"), table, check_exact=True)


def test_table_without_a_single_type_names_file_and_column(run: Run) -> None:
    with pytest.raises(ValueError, match=r"scores\.parquet: this table cannot be stored.*mixed"):
        run.write_table("scores", pd.DataFrame({"mixed": [1, "a", b"b"]}))
    assert not list(run.path.glob("*scores*"))


def test_resume_helpers_compute_once_and_give_what_a_resume_gives(run: Run) -> None:
    calls: list[str] = []

    def computed(name: str, value: object) -> Callable[[], object]:
        def compute() -> object:
            calls.append(name)
            return value

        return compute

    for _ in range(2):
        assert run.json("pair", computed("json", {"pair": (1, 2)})) == {"pair": [1, 2]}
        assert torch.equal(run.tensors("t", computed("tensors", {"a": torch.ones(2)}))["a"], torch.ones(2))  # type: ignore[arg-type]
        assert run.table("t", computed("table", pd.DataFrame({"a": [1]}))).a.tolist() == [1]  # type: ignore[arg-type]
    assert calls == ["json", "tensors", "table"]


def test_a_computation_that_fails_leaves_nothing(run: Run) -> None:
    def fails() -> pd.DataFrame:
        raise RuntimeError("no table")

    with pytest.raises(RuntimeError, match="no table"):
        run.table("t", fails)
    assert {f.name for f in run.path.iterdir()} == {"run.json", ".lock"}


@pytest.mark.parametrize("name", ["", "../escape", "/etc/passwd", "a/../b", ".hidden", "a b", "run", "finished"])
def test_names_stay_inside_the_run(name: str, run: Run) -> None:
    with pytest.raises(ValueError, match="cannot name a file of a run"):
        run.write_json(name, 1)


@pytest.mark.parametrize("suffix", ["json", "safetensors", "parquet"])
def test_missing_and_truncated_files_are_named(suffix: str, run: Run) -> None:
    read = {"json": run.read_json, "safetensors": run.read_tensors, "parquet": run.read_table}[suffix]
    with pytest.raises(RunError, match=rf"x\.{suffix} does not exist"):
        read("x")
    run.write_json("x", list(range(500)))
    run.write_tensors("x", {"a": torch.ones(500)})
    run.write_table("x", pd.DataFrame({"a": range(500)}))
    file = run.path / f"x.{suffix}"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(RunError, match=rf"x\.{suffix} is not a whole"):
        read("x")


def test_finish_marks_the_run(run: Run) -> None:
    assert not run.finished
    run.finish()
    assert Run.open(run.path).finished


# --- metrics


def test_metrics_are_rows_in_order_with_missing_columns(run: Run) -> None:
    assert run.metrics().empty
    run.log({"step": 1, "loss": 0.1 + 0.2})
    run.log({"step": 2, "loss": None, "note": "a\nb\u2028c"})
    table = run.metrics()
    assert table.step.tolist() == [1, 2]
    assert table.loss[0] == 0.1 + 0.2
    assert np.isnan(table.loss[1])
    assert table.note[1] == "a\nb\u2028c"


def test_metrics_refuse_nan_by_column(run: Run) -> None:
    with pytest.raises(ValueError, match=r"row\.loss is nan"):
        run.log({"step": 1, "loss": float("nan")})
    assert run.metrics().empty


def test_a_torn_last_line_is_dropped_and_said(run: Run) -> None:
    run.log({"step": 1})
    run.log({"step": 2})
    file = run.path / "metrics.jsonl"
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.warns(UserWarning, match=r"metrics\.jsonl: the last line was cut off"):
        assert run.metrics().step.tolist() == [1]
    with pytest.warns(UserWarning, match=r"metrics\.jsonl: the last line was cut off"):
        run.log({"step": 3})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run.metrics().step.tolist() == [1, 3]


@pytest.mark.parametrize("line", ['{"step": ', "", "17"])
def test_a_damaged_middle_line_is_an_error_with_its_number(line: str, run: Run) -> None:
    (run.path / "metrics.jsonl").write_text(f'{{"step": 1}}\n{line}\n{{"step": 3}}\n')
    with pytest.raises(RunError, match=r"metrics\.jsonl:2: this line"):
        run.metrics()


def test_rewind_drops_later_steps_only(run: Run) -> None:
    run.rewind(0)
    for row in ({"note": "start"}, {"step": 1}, {"step": 2}, {"step": 3}):
        run.log(row)
    run.rewind(2)
    assert run.metrics().step.tolist()[1:] == [1, 2]
    assert run.metrics().note[0] == "start"


# --- the disk fails

WRITES: dict[str, Callable[[Run], None]] = {
    "x.json": lambda run: run.write_json("x", "a" * 100_000),
    "x.safetensors": lambda run: run.write_tensors("x", {"a": torch.ones(100_000)}),
    "x.parquet": lambda run: run.write_table("x", pd.DataFrame({"a": np.random.rand(100_000)})),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_full_disk_at_the_last_moment_keeps_the_old_version(name: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    WRITES[name](run)
    before = {f.name: f.read_bytes() for f in run.path.iterdir()}

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=rf"No space left on device; nothing was written.*{name}") as caught:
        WRITES[name](run)
    assert caught.value.errno == errno.ENOSPC
    assert {f.name: f.read_bytes() for f in run.path.iterdir()} == before


LIMITED = """
import os, resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.test_runs import SPEC, WRITES
from hc_lens.runs import Run
run = Run.at(Path(sys.argv[1]), "finetune", SPEC)
run.log({"step": 1})
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
for name, write in WRITES.items():
    try:
        write(run)
    except OSError as error:
        assert error.errno == 27 and name in str(error) and "nothing was written" in str(error), error
    else:
        raise AssertionError(f"{name} was written past the limit")
try:
    run.log({"step": 2, "note": "a" * 10_000})
except OSError as error:
    assert "metrics.jsonl" in str(error), error
assert run.metrics().step.tolist() == [1]
print(sorted(os.listdir(run.path)))
"""


def test_a_real_write_limit_leaves_nothing_half_written(tmp_path: Path) -> None:
    process = python(LIMITED, tmp_path / "run", Path(__file__).parent.parent)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out.strip() == "['.lock', 'metrics.jsonl', 'run.json']"


def test_an_unwritable_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match=r"nothing was written.*file/x\.json"):
        atomic.write_json(tmp_path / "file" / "x.json", 1)


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640)])
def test_files_have_the_permissions_of_any_new_file(umask: int, mode: int, run: Run) -> None:
    before = os.umask(umask)
    try:
        run.write_tensors("gates", {"a": torch.zeros(3)})
        run.write_json("outcome", {})
        run.write_table("rows", pd.DataFrame({"a": [1]}))
    finally:
        os.umask(before)
    for name in ("gates.safetensors", "outcome.json", "rows.parquet"):
        assert (run.path / name).stat().st_mode & 0o777 == mode, name


def test_a_body_that_writes_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"empty\.txt"), atomic_path(tmp_path / "empty.txt"):
        pass
    assert not list(tmp_path.iterdir())


def test_an_error_of_the_body_is_its_own(tmp_path: Path) -> None:
    def write(then: Callable[[], object]) -> None:
        with atomic_path(tmp_path / "a") as file:
            file.write_text("half")
            then()

    with pytest.raises(ZeroDivisionError):
        write(lambda: 1 / 0)
    with pytest.raises(FileNotFoundError, match="elsewhere") as caught:
        write((tmp_path / "elsewhere").read_text)
    assert "nothing was written" not in str(caught.value)
    assert not list(tmp_path.iterdir())


# --- processes

WRITER = """
import sys
from pathlib import Path
import pandas as pd, torch
from hc_lens.runs import Run
run = Run.open(Path(sys.argv[1]))
with run.locked():
    print("started", flush=True)
    for step in range(1, 1_000_000):
        run.write_tensors("weights", {"a": torch.full((300_000,), float(step))})
        run.write_json("state", [step] * 30_000)
        run.write_table("table", pd.DataFrame({"step": [step] * 30_000}))
        run.log({"step": step})
"""


@pytest.mark.parametrize("wait", [0.05, 0.13, 0.2])
def test_kill_9_leaves_whole_files_and_frees_the_lock(wait: float, run: Run) -> None:
    process = python(WRITER, run.path)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    with pytest.raises(RunError, match="is being worked on by another process"), run.locked():
        pass
    while not (run.path / "table.parquet").exists():
        time.sleep(0.005)
    time.sleep(wait)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    with run.locked():
        assert not list(run.path.glob(".*.tmp"))
    assert len(run.read_tensors("weights")["a"].unique()) == 1
    assert len(set(run.read_json("state"))) == 1  # type: ignore[call-overload]
    assert run.read_table("table").step.nunique() == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        steps = run.metrics().step.tolist() if (run.path / "metrics.jsonl").exists() else []
    assert steps == list(range(1, len(steps) + 1))


def test_parts_of_a_run_are_locked_and_cleared_apart(run: Run) -> None:
    mine, other = run.path / ".seed-4.parquet.0a1b2c3d.tmp", run.path / ".seed-42.parquet.0a1b2c3d.tmp"
    for file in (mine, other):
        file.write_text("half")
    with run.locked("seed-4"):
        assert (mine.exists(), other.exists()) == (False, True)
        with Run.open(run.path).locked("seed-42", "seed-43"):
            assert not other.exists()
        with pytest.raises(BusyError, match=r"\.lock-seed-4"), Run.open(run.path).locked("seed-3", "seed-4"):
            pass


def test_the_lock_is_one_at_a_time_and_released_after_an_error(run: Run) -> None:
    with run.locked(), pytest.raises(RunError, match=r"holds .*\.lock"), Run.open(run.path).locked():
        pass
    with pytest.raises(KeyError), run.locked():
        raise KeyError
    with run.locked():
        pass


def test_a_process_that_waits_gets_the_lock_when_it_is_released(run: Run) -> None:
    held, released = threading.Event(), threading.Event()

    def hold() -> None:
        with run.locked():
            held.set()
            time.sleep(0.3)
            released.set()

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)
    with Run.open(run.path).locked(wait=True):
        assert released.is_set()
    thread.join()
