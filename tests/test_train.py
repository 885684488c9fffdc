"""Fine-tuning: the recipe's numbers, equality with a plain transformers loop, and resumption bit for bit wherever it stops."""

import errno
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import AutoModelForSequenceClassification, BertConfig, get_linear_schedule_with_warmup

from hc_lens.atomic import read_tensors
from hc_lens.data.batches import encode, shuffled_rows
from hc_lens.data.synthetic import LABELS, synthetic_config, synthetic_nli, synthetic_tokenizer
from hc_lens.data.task import Task
from hc_lens.metrics import LabelOrderError
from hc_lens.models import Classifier, load_model, new_model
from hc_lens.origin import Checkpoint
from hc_lens.runs import Run, RunError
from hc_lens.train import TrainConfig, TrainingError, checkpoints, evaluations, finetune, learning_rate
from hc_lens.train.loop import _stream

CONFIG = TrainConfig(steps=12, batch_size=8, lr=1e-3, checkpoint_every=4, log_every=3, seed=5)


def tiny_config(dropout: float = 0.1, labels: tuple[str, ...] = LABELS) -> BertConfig:
    config = synthetic_config(labels)
    config.update(
        {
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 24,
            "hidden_dropout_prob": dropout,
            "attention_probs_dropout_prob": dropout,
        }
    )
    return config


def tiny_model(dropout: float = 0.1, seed: int = 0, labels: tuple[str, ...] = LABELS) -> Classifier:
    return new_model(tiny_config(dropout, labels), tokenizer=synthetic_tokenizer(), seed=seed)


def tiny_task() -> Task:
    return synthetic_nli(n_train=100, n_id=20, n_ood_per_case=2)


@pytest.fixture(scope="module")
def task() -> Task:
    return tiny_task()


@pytest.fixture(scope="module")
def uninterrupted(task: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of `CONFIG` that nothing disturbed."""
    directory = tmp_path_factory.mktemp("whole") / "run"
    finetune(tiny_model(), task, CONFIG, directory)
    return directory


def weights(model: Classifier) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def assert_same_run(directory: Path, expected: Path) -> None:
    """Every checkpoint and every logged row, bit for bit."""
    assert [c.step for c in checkpoints(directory)] == [c.step for c in checkpoints(expected)]
    for ours, theirs in zip(checkpoints(directory), checkpoints(expected), strict=True):
        left, right = read_tensors(ours.path), read_tensors(theirs.path)
        assert left.keys() == right.keys()
        assert all(torch.equal(left[name], right[name]) for name in left), f"step {ours.step}"
    pd.testing.assert_frame_equal(Run.open(directory).metrics(), Run.open(expected).metrics(), check_exact=True)


def count(model: Classifier, task: Task) -> pd.DataFrame:
    """Stands for an evaluation: one row per case, and a number that depends on weights and mode."""
    torch.rand(3)
    total = float(sum(weight.detach().double().sum() for weight in model.parameters()))
    return pd.DataFrame(
        [{"case": case, "group": task.group(case), "accuracy": total, "eval": not model.training} for case in task.cases]
    )


# --- the recipe


def test_the_papers_numbers() -> None:
    mnli, qqp = TrainConfig.paper_mnli(), TrainConfig.paper_qqp()
    assert (mnli.steps, mnli.batch_size, qqp.steps, qqp.batch_size) == (61_360, 32, 40_000, 128)
    for config in (mnli, qqp):
        assert not config.bucket
        assert (config.lr, config.max_length, config.betas, config.weight_decay) == (2e-5, 128, (0.9, 0.999), 0)
        assert (config.warmup_steps, config.decay, config.checkpoint_every) == (0, "linear", 500)
        assert config.dropout
    assert mnli.checkpoint_steps[:3] == (0, 500, 1000)
    assert mnli.checkpoint_steps[-2:] == (61_000, 61_360)


def test_checkpoint_steps_end_once() -> None:
    assert replace(CONFIG, steps=8, checkpoint_every=4).checkpoint_steps == (0, 4, 8)
    assert replace(CONFIG, steps=3, checkpoint_every=4).checkpoint_steps == (0, 3)


@given(steps=st.integers(1, 60), data=st.data())
@settings(max_examples=30)
def test_learning_rate_is_transformers_schedule(steps: int, data: st.DataObject) -> None:
    config = TrainConfig(steps=steps, lr=0.3, warmup_steps=data.draw(st.integers(0, steps - 1)))
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=config.lr)
    schedule = get_linear_schedule_with_warmup(optimizer, config.warmup_steps, steps)
    for step in range(steps):
        assert learning_rate(config, step) == pytest.approx(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    constant = replace(config, decay="constant")
    assert learning_rate(constant, steps) == config.lr


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("steps", 0),
        ("batch_size", 0),
        ("lr", 0.0),
        ("lr", float("nan")),
        ("clip", -1.0),
        ("weight_decay", -0.1),
        ("betas", (0.9, 1.0)),
        ("warmup_steps", 12),
        ("checkpoint_every", 0),
        ("log_every", 0),
        ("max_length", 0),
    ],
)
def test_config_refuses(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"{field} .*got {str(value).replace('(', '.').replace(')', '.')}"):
        replace(CONFIG, **{field: value})


@pytest.mark.parametrize("labels", [LABELS, LABELS[::-1]])
def test_three_steps_equal_a_plain_transformers_loop(labels: tuple[str, ...], task: Task, tmp_path: Path) -> None:
    """Adam, schedule, clipping, loss and label order, against transformers' model and torch's Adam."""
    config = replace(CONFIG, steps=3, lr=1e-2, clip=0.5)
    torch.manual_seed(0)
    theirs = AutoModelForSequenceClassification.from_config(tiny_config(0.0, labels))
    ours = load_model(hf_model=theirs, tokenizer=synthetic_tokenizer())
    finetune(ours, task, config, tmp_path / "run")

    data = encode(task.train, synthetic_tokenizer(), 48)
    order = shuffled_rows(data.lengths, 8, 3, torch.Generator().manual_seed(_stream(config.seed, "data")))
    to_model = torch.tensor([labels.index(name) for name in task.labels])
    optimizer = torch.optim.Adam(theirs.parameters(), lr=config.lr)
    for step, rows in enumerate(order):
        optimizer.param_groups[0]["lr"] = config.lr * (1 - step / 3)
        batch = data.batch(rows)
        assert batch.labels is not None
        output = theirs(
            batch.input_ids,
            attention_mask=batch.attention_mask,
            token_type_ids=batch.token_type_ids,
            labels=to_model[batch.labels],
        )
        optimizer.zero_grad()
        output.loss.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
        optimizer.step()
    expected = weights(load_model(hf_model=theirs))
    # Adam divides by the gradient's size: where that is rounding noise (key biases, which softmax cancels), so is the step
    noise = {name for name in expected if name.endswith("attn.b_K")}
    for name, weight in weights(ours).items():
        if name not in noise:
            torch.testing.assert_close(weight, expected[name], atol=2e-4, rtol=0, msg=name)


def test_training_learns(tmp_path: Path) -> None:
    config = replace(CONFIG, steps=80, lr=1e-2, checkpoint_every=80, log_every=10, decay="constant")
    finetune(tiny_model(0.0), synthetic_nli(n_train=8, n_id=8, n_ood_per_case=1), config, tmp_path / "run")
    assert Run.open(tmp_path / "run").metrics().loss.iloc[-1] < 0.1


def test_bf16_computes_in_bfloat16_and_keeps_weights_in_fp32(task: Task, tmp_path: Path) -> None:
    seen: set[torch.dtype] = set()
    model = tiny_model(0.0)
    hook = model.register_forward_hook(lambda module, inputs, output: seen.add(output.dtype))
    finetune(model, task, replace(CONFIG, precision="bf16"), tmp_path / "bf16")
    hook.remove()
    assert seen == {torch.bfloat16}
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    finetune(tiny_model(0.0), task, CONFIG, tmp_path / "fp32")
    half, full = (Run.open(tmp_path / name).metrics().loss for name in ("bf16", "fp32"))
    assert half.tolist() == pytest.approx(full.tolist(), rel=0.02)
    assert half.tolist() != full.tolist()


def test_seed_and_dropout_decide_the_weights(uninterrupted: Path, task: Task, tmp_path: Path) -> None:
    losses: list[list[float]] = [Run.open(uninterrupted).metrics().loss.tolist()]
    for name, config in {"seed": replace(CONFIG, seed=6), "dropout": replace(CONFIG, dropout=False)}.items():
        finetune(tiny_model(), task, config, tmp_path / name)
        losses.append(Run.open(tmp_path / name).metrics().loss.tolist())
    finetune(tiny_model(0.0), task, CONFIG, tmp_path / "no rates")
    assert losses[2] == Run.open(tmp_path / "no rates").metrics().loss.tolist()
    assert len({tuple(loss) for loss in losses}) == 3


# --- checkpoints


def test_checkpoints_go_from_the_start_to_the_model_that_is_left(task: Task, tmp_path: Path) -> None:
    model = tiny_model()
    start = weights(model)
    kept = finetune(model, task, CONFIG, tmp_path / "run")
    assert [c.step for c in kept] == [0, 4, 8, 12]
    assert kept == checkpoints(tmp_path / "run")
    other = tiny_model(seed=9)
    kept[0].load_into(other)
    assert all(torch.equal(weights(other)[name], start[name]) for name in start)
    kept[-1].load_into(other)
    assert all(torch.equal(weights(other)[name], left) for name, left in weights(model).items())
    assert not any(torch.equal(start[name], left) for name, left in weights(model).items() if name.endswith("W_V"))


def test_only_the_newest_optimizer_state_is_kept_and_none_at_the_end(task: Task, tmp_path: Path) -> None:
    def states(model: Classifier, task: Task) -> pd.DataFrame:
        return pd.DataFrame({"states": [len(list((tmp_path / "run").rglob("resume*")))]})

    finetune(tiny_model(), task, CONFIG, tmp_path / "run", evaluate=states)  # type: ignore[arg-type]
    assert evaluations(tmp_path / "run").states.tolist() == [0, 1, 1, 1]
    assert not list((tmp_path / "run").rglob("resume*"))


def test_a_checkpoint_of_another_model_is_refused(uninterrupted: Path) -> None:
    config = tiny_config()
    config.num_hidden_layers = 3
    with pytest.raises(RunError, match=r"step-000004\.safetensors is not of this model"):
        checkpoints(uninterrupted)[1].load_into(new_model(config))
    with pytest.raises(RunError, match="does not exist"):
        Checkpoint(3, uninterrupted / "checkpoints" / "step-000003.safetensors").load_into(tiny_model())


def test_checkpoints_of_another_kind_of_run_are_refused(tmp_path: Path) -> None:
    Run.at(tmp_path, "prune", {})
    with pytest.raises(RunError, match="holds a 'prune' run, not a fine-tuning run"):
        checkpoints(tmp_path)


# --- evaluation


def test_every_checkpoint_is_evaluated_and_training_does_not_notice(uninterrupted: Path, task: Task, tmp_path: Path) -> None:
    finetune(tiny_model(), task, CONFIG, tmp_path / "run", evaluate=count)  # type: ignore[arg-type]
    table = evaluations(tmp_path / "run")
    assert table.columns.tolist() == ["step", "case", "group", "accuracy", "eval"]
    assert table.step.unique().tolist() == [0, 4, 8, 12]
    assert len(table) == 4 * len(task.cases)
    assert table["eval"].all()
    assert table.accuracy.nunique() == 4
    assert_same_run(tmp_path / "run", uninterrupted)


def test_a_finished_run_is_loaded_and_evaluated_later(task: Task, tmp_path: Path) -> None:
    model = tiny_model()
    finetune(model, task, CONFIG, tmp_path / "run")
    assert evaluations(tmp_path / "run").empty
    trained = weights(model)
    again = tiny_model()
    again.classify = None  # type: ignore[assignment,method-assign]
    finetune(again, task, CONFIG, tmp_path / "run", evaluate=count)  # type: ignore[arg-type]
    assert all(torch.equal(weights(again)[name], trained[name]) for name in trained)
    whole = tmp_path / "whole"
    finetune(tiny_model(), task, CONFIG, whole, evaluate=count)  # type: ignore[arg-type]
    pd.testing.assert_frame_equal(evaluations(tmp_path / "run"), evaluations(whole), check_exact=True)


# --- what stops a run, and going on


class StoppedError(Exception):
    """Something that ends a run at a chosen place."""


def stop_at_forward(model: Classifier, number: int) -> None:
    """Let the `number`-th forward pass fail."""
    left = iter(range(number - 1))

    def hook(module: torch.nn.Module, inputs: object) -> None:
        if next(left, None) is None:
            raise StoppedError

    model.register_forward_pre_hook(hook)


@pytest.mark.parametrize("number", [1, 3, 5, 8, 9, 12])
def test_resumes_bit_equal_after_an_error_at_any_step(number: int, uninterrupted: Path, task: Task, tmp_path: Path) -> None:
    model = tiny_model()
    stop_at_forward(model, number)
    with pytest.raises(StoppedError):
        finetune(model, task, CONFIG, tmp_path / "run")
    torch.rand(number)  # the global random state must not matter
    finetune(tiny_model(), task, CONFIG, tmp_path / "run")
    assert_same_run(tmp_path / "run", uninterrupted)


def test_resumes_when_stopped_between_checkpoint_and_evaluation(uninterrupted: Path, task: Task, tmp_path: Path) -> None:
    def fails_once(model: Classifier, task: Task, calls: Iterator[int] = iter(range(9))) -> pd.DataFrame:  # noqa: B008
        if next(calls) == 2:
            raise StoppedError
        return count(model, task)

    with pytest.raises(StoppedError):
        finetune(tiny_model(), task, CONFIG, tmp_path / "run", evaluate=fails_once)  # type: ignore[arg-type]
    finetune(tiny_model(), task, CONFIG, tmp_path / "run", evaluate=fails_once)  # type: ignore[arg-type]
    assert_same_run(tmp_path / "run", uninterrupted)
    assert evaluations(tmp_path / "run").step.unique().tolist() == [0, 4, 8, 12]
    assert evaluations(tmp_path / "run").accuracy.nunique() == 4


def test_resumes_after_a_full_disk(uninterrupted: Path, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_file = os.replace

    def full(source: str | Path, target: str | Path) -> None:
        if Path(target).name == "step-000008.safetensors":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace_file(source, target)

    with monkeypatch.context() as disk:
        disk.setattr(os, "replace", full)
        with pytest.raises(OSError, match=r"No space left.*step-000008\.safetensors"):
            finetune(tiny_model(), task, CONFIG, tmp_path / "run")
    assert [c.step for c in checkpoints(tmp_path / "run")] == [0, 4]
    finetune(tiny_model(), task, CONFIG, tmp_path / "run")
    assert_same_run(tmp_path / "run", uninterrupted)


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.test_train import LONG, finetune, tiny_model, tiny_task
finetune(tiny_model(), tiny_task(), LONG, Path(sys.argv[1]))
"""
LONG = replace(CONFIG, steps=120, checkpoint_every=5, log_every=2)


def test_resumes_bit_equal_after_kill_9(task: Task, tmp_path: Path) -> None:
    directory = tmp_path / "killed"
    root = Path(__file__).parent.parent
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(directory), str(root)], stderr=subprocess.PIPE, text=True)
    while not (directory / "resume.safetensors").exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.002)
    time.sleep(random.Random(time.time_ns()).uniform(0, 0.4))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "the run ended before it was killed: make LONG longer"
    finetune(tiny_model(), task, LONG, directory)
    finetune(tiny_model(), task, LONG, tmp_path / "whole")
    assert_same_run(directory, tmp_path / "whole")


# --- what is refused


def test_another_config_model_or_task_in_the_directory_is_refused(uninterrupted: Path, task: Task) -> None:
    with pytest.raises(RunError, match=r"config\.lr is 0\.001 there, 0\.002 asked"):
        finetune(tiny_model(), task, replace(CONFIG, lr=2e-3), uninterrupted)
    with pytest.raises(RunError, match="another specification: model is"):
        finetune(tiny_model(seed=1), task, CONFIG, uninterrupted)
    with pytest.raises(RunError, match=r"task\.fingerprint is"):
        finetune(tiny_model(), synthetic_nli(n_train=100, n_id=20, n_ood_per_case=2, seed=1), CONFIG, uninterrupted)


def test_labels_that_are_not_the_tasks_are_refused(task: Task, tmp_path: Path) -> None:
    with pytest.raises(LabelOrderError, match=r"'yes', 'no'.*'entailment', 'non-entailment'"):
        finetune(tiny_model(labels=("yes", "no")), task, CONFIG, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("bad", [1, 2, 5, 7, 12])
def test_nan_loss_names_its_step_and_keeps_no_checkpoint_of_it(bad: int, task: Task, tmp_path: Path) -> None:
    model = tiny_model()
    left = iter(range(bad - 1))

    def spoil(module: torch.nn.Module, inputs: object, output: Tensor) -> Tensor:
        return output if next(left, None) is not None else output * torch.nan

    model.register_forward_hook(spoil)
    advice = r"lower lr \(0\.001\)" if bad > 1 else "no weight had moved yet, so look at the model's logits"
    with pytest.raises(TrainingError, match=rf"the loss is nan at step {bad} of 12; {advice}"):
        finetune(model, task, CONFIG, tmp_path / "run")
    kept = checkpoints(tmp_path / "run")
    assert [c.step for c in kept] == [step for step in (0, 4, 8) if step < bad]
    assert all(read_tensors(c.path)[name].isfinite().all() for c in kept for name in weights(model))


def test_weights_that_blow_up_are_not_kept(task: Task, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"the weight .* is not finite after step 1"):
        finetune(tiny_model(), task, replace(CONFIG, lr=1e39, checkpoint_every=1), tmp_path / "run")
    assert [c.step for c in checkpoints(tmp_path / "run")] == [0]


# --- what is left behind


def prepare(model: Classifier) -> list[Callable[[], object]]:
    """An unusual state, and what reads it."""
    model.eval()
    model.blocks[1].train()  # type: ignore[index, operator, union-attr]
    model.classifier.weight.requires_grad_(False)
    return [
        lambda: [module.training for module in model.modules()],
        lambda: [weight.requires_grad for weight in model.parameters()],
        lambda: [weight.grad for weight in model.parameters()],
        lambda: torch.get_rng_state().tolist(),
    ]


@pytest.mark.parametrize("fails", [False, True])
def test_modes_gradients_and_randomness_are_restored(fails: bool, task: Task, tmp_path: Path) -> None:
    model = tiny_model()
    readers = prepare(model)
    before = [read() for read in readers]
    frozen = model.classifier.weight.clone()
    if fails:
        stop_at_forward(model, 6)
        with pytest.raises(StoppedError):
            finetune(model, task, CONFIG, tmp_path / "run")
    else:
        finetune(model, task, CONFIG, tmp_path / "run")
    assert [read() for read in readers] == before
    assert not torch.equal(model.classifier.weight, frozen)


def test_nothing_is_printed_off_a_terminal(task: Task, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    finetune(tiny_model(), task, CONFIG, tmp_path / "run")
    assert capfd.readouterr() == ("", "")
