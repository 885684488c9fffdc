"""Three ways to spend time on the same rows: our pruning step, the recipe as published, and the floor under both.

Each does one fixed round of batches at every `run()`; what `ready()` opens (fusing the model, for ours) happens once per run of
pruning and is left out of the timing.
"""

import copy
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional
from transformers import BertConfig, BertForSequenceClassification

from experiments.bench.batches import MAX_LENGTH
from hc_lens.data.batches import Batch, Encoded
from hc_lens.gates import HardConcrete
from hc_lens.means import ActivationMeans
from hc_lens.models import Classifier
from hc_lens.pruning import GateTraining, PruneConfig
from hc_lens.pruning.objective import kl_to_full

SEED = 42


class Workload(Protocol):
    """Something that is timed."""

    examples: int
    """Rows that one round handles."""

    def ready(self) -> AbstractContextManager[object]:
        """What must be open while rounds run."""
        ...

    def run(self) -> None:
        """One round."""
        ...


def bert(layers: int = 12, *, attention: str, config: BertConfig | None = None) -> BertForSequenceClassification:
    """A frozen transformers BERT classifier with three labels and seeded random weights, BERT-base but for `layers`."""
    config = copy.deepcopy(config) if config is not None else BertConfig(num_hidden_layers=layers)
    config.num_labels = 3
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = BertForSequenceClassification._from_config(config, attn_implementation=attention)
    return model.eval().requires_grad_(False)


class OurStep:
    """`GateTraining.step`, desk recipe, one seed: one batch, one draw of the gates and one optimiser step each."""

    def __init__(
        self,
        model: Classifier,
        encoded: Encoded,
        rows: Int[Tensor, "step batch"],
        precision: Literal["fp32", "bf16"],
        rounds: int,
        means: ActivationMeans,
    ) -> None:
        """Ready for at most `rounds` rounds; the teacher is computed here, in `teacher_seconds` of CPU per row."""
        self.examples, self._steps = rows.numel(), len(rows)
        steps = rounds * len(rows)
        config = PruneConfig(
            steps=steps, ramp_steps=steps, batch_size=rows.shape[1], max_length=MAX_LENGTH, precision=precision, dropout=False
        )
        start = time.process_time()
        loss = kl_to_full(model, encoded, rows.unique(), dtype=torch.bfloat16 if precision == "bf16" else None)
        self.teacher_seconds = (time.process_time() - start) / len(rows.unique())
        self.training = GateTraining(model, encoded, means, config, [SEED], loss, [rows.repeat(rounds, 1)])

    def ready(self) -> AbstractContextManager[object]:
        """The model frozen and fused."""
        return self.training

    def run(self) -> None:
        """Every batch once."""
        for _ in range(self._steps):
            self.training.step()


class Published:
    """The Heuristic Core's recipe (appendix A and its released code), in plain transformers.

    Every batch padded to `MAX_LENGTH`; eager attention; the teacher, a second copy of the model, runs at every step, without
    dropout; the student has dropout on; x' = mu + g (x - mu) on each head's context before W_O and on each MLP's output after
    its dropout; KL + Lagrangian on the sampled sparsity; clipping at 1.0; AdamW with decay 0.01 on log_alpha and, maximised, on
    lambda. The weights are frozen with requires_grad off, as in the released code. The optimiser steps at every batch, not at
    every fourth: it has 158 numbers to update.
    """

    def __init__(
        self, model: BertForSequenceClassification, encoded: Encoded, rows: Int[Tensor, "step batch"], means: ActivationMeans
    ) -> None:
        self.examples, self.encoded, self.rows = rows.numel(), encoded, rows
        self.device = model.device
        self.teacher, self.student = model, copy.deepcopy(model).train()
        self.means = means.to(self.device)
        self.concrete = HardConcrete()
        self.noise = torch.Generator().manual_seed(SEED)
        gates = (means.n_layers, means.n_heads + 1)
        start = 10 + 0.01 * torch.randn(gates, generator=torch.Generator().manual_seed(SEED))
        self.log_alpha = start.to(self.device).requires_grad_()
        self.multipliers = torch.zeros(2, device=self.device, requires_grad=True)
        groups = [
            {"params": [self.log_alpha], "lr": 0.1},
            {"params": [self.multipliers], "lr": 1.0, "maximize": True},
        ]
        self.optimiser = torch.optim.AdamW(groups, weight_decay=0.01)
        self.gates = self.log_alpha.detach()
        for layer, block in enumerate(self.student.bert.encoder.layer):
            block.attention.self.register_forward_hook(self._gate_heads(layer))
            block.output.dropout.register_forward_hook(self._gate_mlp(layer))

    def ready(self) -> AbstractContextManager[object]:
        """Nothing."""
        return nullcontext()

    def run(self) -> None:
        """Every batch once."""
        for rows in self.rows:
            u = self.concrete.noise(tuple(self.log_alpha.shape), self.noise).to(self.device)
            self.loss(self.padded(rows), u, target=0.25).backward()
            torch.nn.utils.clip_grad_norm_([self.log_alpha, self.multipliers], 1.0)
            self.optimiser.step()
            self.optimiser.zero_grad(set_to_none=True)

    def loss(self, batch: Batch, u: Float[Tensor, "layer unit"], target: float) -> Float[Tensor, ""]:
        """KL (batch mean) plus Lagrangian, for noise `u` of the gates."""
        self.gates = self.concrete.sample(self.log_alpha, u)
        with torch.no_grad():
            teacher = _logits(self.teacher, batch).log_softmax(-1)
        student = _logits(self.student, batch).log_softmax(-1)
        gap = target - (1 - self.gates.mean())
        kl = functional.kl_div(student, teacher, reduction="batchmean", log_target=True)
        return kl + self.multipliers[0] * gap + self.multipliers[1] * gap**2

    def padded(self, rows: Int[Tensor, " batch"]) -> Batch:
        """These rows, padded to `MAX_LENGTH` whatever their lengths."""
        batch = self.encoded.batch(rows)
        room = (0, MAX_LENGTH - batch.input_ids.shape[1])
        types = batch.token_type_ids
        return Batch(
            input_ids=functional.pad(batch.input_ids, room, value=batch.pad_id),
            attention_mask=functional.pad(batch.attention_mask, room),
            token_type_ids=None if types is None else functional.pad(types, room),
            labels=batch.labels,
            rows=batch.rows,
            pad_id=batch.pad_id,
        ).to(self.device)

    def _gate_heads(self, layer: int) -> Callable[[nn.Module, object, tuple[Tensor, Tensor]], tuple[Tensor, Tensor]]:
        mean = self.means.head[layer]

        def hook(module: nn.Module, inputs: object, output: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            z = output[0].unflatten(-1, mean.shape)
            gated = mean + self.gates[layer, :-1, None] * (z - mean)
            return gated.flatten(-2), output[1]

        return hook

    def _gate_mlp(self, layer: int) -> Callable[[nn.Module, object, Tensor], Tensor]:
        mean = self.means.mlp[layer]

        def hook(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
            return mean + self.gates[layer, -1] * (output - mean)

        return hook


class Floor:
    """The least a gate gradient can cost in transformers: sdpa forward and backward to the first layer's context vectors.

    No gates, no teacher, no dropout, no optimiser; the weights are frozen. The graph begins at the output of layer 0's
    attention, before its W_O, which is where the first gate sits: nothing below needs a gradient. In bf16 the whole model is
    held
    in bfloat16, which is less work than autocast (no casts, and half the bytes in every LayerNorm).
    """

    def __init__(self, model: BertForSequenceClassification, encoded: Encoded, rows: Int[Tensor, "step batch"]) -> None:
        self.examples, self.model, self.rows = rows.numel(), model, rows
        self.encoded = encoded
        model.bert.encoder.layer[0].attention.self.register_forward_hook(_leaf)

    def ready(self) -> AbstractContextManager[object]:
        """Nothing."""
        return nullcontext()

    def run(self) -> None:
        """Every batch once."""
        for rows in self.rows:
            batch = self.encoded.batch(rows).to(self.model.device)
            _logits(self.model, batch).float().log_softmax(-1)[:, 0].mean().backward()


def _leaf(module: nn.Module, inputs: object, output: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return output[0].detach().requires_grad_(), output[1]


def _logits(model: BertForSequenceClassification, batch: Batch) -> Float[Tensor, "batch label"]:
    return model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, token_type_ids=batch.token_type_ids).logits
