"""Accuracy by shot on {seen, unseen} tasks x {train, test} examples, the phase that the four make, and what is lost again."""

from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor
from transformer_lens import HookedRootModule

from hc_lens.forward import device_of, inference
from hc_lens.modular.incontext.sequences import answer_logits, answers_of, as_tokens, draw_examples
from hc_lens.modular.incontext.tasks import ExampleSplit, TaskSplit
from hc_lens.statistics import wilson_interval

_CHUNK = 512
"""Sequences that are evaluated at once."""


class EvaluationSet(NamedTuple):
    """Tasks of pre-training or not, and examples of pre-training or not; all examples of a sequence are of the one kind."""

    tasks: Literal["seen", "unseen"]
    examples: Literal["train", "test"]

    def __str__(self) -> str:
        return f"{self.tasks} tasks, {self.examples} examples"


SETS = tuple(EvaluationSet(tasks, examples) for tasks in ("seen", "unseen") for examples in ("train", "test"))

Phase = Literal["none", "ID memorisation", "ID generalization", "OOD memorisation", "OOD generalization"]
"""What a model can do, after the last shot: the four phases of "Learning to grok", section 4, or none of it."""

PHASES: tuple[Phase, ...] = get_args(Phase)

THRESHOLD = 0.75
"""Accuracy at the last shot from which a set counts as solved. The paper gives no number: this one is ours."""


class Sequences(NamedTuple):
    """Evaluation sequences of one set."""

    tokens: Int[Tensor, "batch pos"]
    of: EvaluationSet


def evaluation_sequences(
    tasks: TaskSplit, examples: ExampleSplit, of: EvaluationSet, n_shots: int, n: int, seed: int
) -> Sequences:
    """n sequences of a set, tasks in turn, each with examples of its own.

    Rows are as long as the examples allow, up to `n_shots`: those of a sequence are all different.
    """
    chosen = tasks.seen if of.tasks == "seen" else tasks.unseen
    pool = examples.train if of.examples == "train" else examples.test
    generator = torch.Generator().manual_seed(seed)
    order = chosen[torch.randperm(len(chosen), generator=generator)]
    drawn = draw_examples(pool, n, min(n_shots, len(pool)), generator)
    return Sequences(as_tokens(order.repeat(-(-n // len(order)), 1)[:n], drawn, tasks.p), of)


def predicted_answers(model: HookedRootModule, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch shot"]:
    """The model's answer to every query, each from the examples before it; on the CPU."""
    device = device_of(model)
    with inference(model):
        parts = [answer_logits(model, part.to(device)).argmax(-1).cpu() for part in tokens.split(_CHUNK)]
    return torch.cat(parts)


def accuracy_by_shot(
    model: HookedRootModule, tasks: TaskSplit, examples: ExampleSplit, n_shots: int, n: int = 512, seed: int = 0
) -> pd.DataFrame:
    """Accuracy on the four sets, n sequences each: columns tasks, examples, shot, n, accuracy, low, high (95 %, Wilson).

    Shot 1 is the first query, which no example precedes.
    """
    rows: list[dict[str, object]] = []
    for of in SETS:
        tokens, _ = evaluation_sequences(tasks, examples, of, n_shots, n, seed)
        right = (predicted_answers(model, tokens) == answers_of(tokens)).sum(0).tolist()
        for shot, successes in enumerate(right, start=1):
            low, high = wilson_interval(successes, n)
            rows.append({**of._asdict(), "shot": shot, "n": n, "accuracy": successes / n, "low": low, "high": high})
    return pd.DataFrame(rows)


def last_shot(evaluation: pd.DataFrame) -> dict[EvaluationSet, float]:
    """The accuracy on each set after most examples.

    Raises:
        ValueError: if a set is missing.
    """
    found = {
        of: float(rows.sort_values("shot")["accuracy"].iloc[-1])
        for of in SETS
        if len(rows := evaluation[(evaluation["tasks"] == of.tasks) & (evaluation["examples"] == of.examples)])
    }
    if missing := [str(of) for of in SETS if of not in found]:
        raise ValueError(f"the phase needs the accuracy on all four sets; there is none on {missing[0]}")
    return found


def phase_of(accuracies: Mapping[EvaluationSet, float], threshold: float = THRESHOLD) -> Phase:
    """The phase that four accuracies make, a set being solved from the threshold on.

    OOD generalization: all four. OOD memorisation: unseen tasks, but on train examples only. ID generalization: seen tasks on
    test examples too. ID memorisation: seen tasks on train examples only. None: not even those.

    Raises:
        ValueError: if the threshold is not in (0, 1].
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must be in (0, 1], got {threshold}")
    seen_train, seen_test, unseen_train, unseen_test = (accuracies[of] >= threshold for of in SETS)
    if not seen_train:
        return "none"
    if seen_test and unseen_train and unseen_test:
        return "OOD generalization"
    if unseen_train:
        return "OOD memorisation"
    return "ID generalization" if seen_test else "ID memorisation"


def phases_over_training(evaluations: pd.DataFrame, threshold: float = THRESHOLD) -> pd.DataFrame:
    """The phase at every checkpoint: columns `step`, `phase`."""
    rows = [(step, phase_of(last_shot(rows), threshold)) for step, rows in evaluations.groupby("step")]
    return pd.DataFrame(rows, columns=["step", "phase"])


class Transience(NamedTuple):
    """When a set was solved best in training, and what is left of it at the end: OOD generalization passes in deep models."""

    best_step: int
    best: float
    final: float

    @property
    def lost(self) -> float:
        """Accuracy at its best minus at the end."""
        return self.best - self.final


def over_training(evaluations: pd.DataFrame) -> pd.DataFrame:
    """Accuracy at the last shot by step: columns `step`, `set`, `n`, `accuracy`, `low`, `high`; a row per step and set."""
    last = evaluations.groupby(["step", "tasks", "examples"], sort=False)["shot"].idxmax()
    rows = evaluations.loc[last]
    names = [str(EvaluationSet(*of)) for of in zip(rows["tasks"], rows["examples"], strict=True)]
    return rows[["step", "n", "accuracy", "low", "high"]].assign(set=names).reset_index(drop=True)


def transience(evaluations: pd.DataFrame, of: EvaluationSet = SETS[-1]) -> Transience:
    """The best and the last accuracy on a set, over the evaluations of a training run.

    Raises:
        ValueError: if the set was not evaluated.
    """
    curve = over_training(evaluations)
    curve = curve[curve["set"] == str(of)].sort_values("step")
    if curve.empty:
        raise ValueError(f"there is no evaluation on {of}")
    best = int(curve["accuracy"].argmax())
    return Transience(int(curve["step"].iloc[best]), float(curve["accuracy"].iloc[best]), float(curve["accuracy"].iloc[-1]))
