"""Fine-tuning on a new relation: made-up labels for the answers of an old one, and what the model labels the other subjects."""

import copy
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from hc_lens.forward import device_of, dtype_of, inference, mode
from hc_lens.models import fused
from hc_lens.models.language import LanguageModel
from hc_lens.precision import Kind, resolve_asked
from hc_lens.relations.closed_set import closed_set_scores
from hc_lens.relations.config import OPAQUE, FinetuneConfig
from hc_lens.relations.labels import LabelMap
from hc_lens.relations.prompts import Prompts, continuation, encode_prompts
from hc_lens.relations.relation import Relation
from hc_lens.relations.split import Split


@dataclass(frozen=True, eq=False)
class Finetuned:
    """A model's labels for every fact of a relation, after fine-tuning on some of them.

    Attributes:
        scores: log-probability (nats) of each label after the prompt of each fact, in the order of `Relation.answers`.
        predictions: the label with the highest score, as a place in that order.
        right: whether it is the label of the fact's own answer.
        train_accuracy: by epoch, over the training subjects, each before its own update.
        reached: whether an epoch had all of them right; if not, `max_epochs` ended the training.
        seconds: that the fine-tuning took, by the clock.
        model: the fine-tuned model, if it was to be kept; it shares what was not trained with the given one.
    """

    scores: Float[Tensor, "fact label"]
    predictions: Int[Tensor, " fact"]
    right: Bool[Tensor, " fact"]
    train_accuracy: tuple[float, ...]
    reached: bool
    seconds: float
    model: LanguageModel | None = None

    def accuracy(self, facts: Sequence[int]) -> float:
        """Share of the facts at these places that are labelled right: of those held out, the generalization."""
        return self.right[list(facts)].double().mean().item()


@dataclass(frozen=True, eq=False)
class _Task:
    """What goes into the first trained block, for every fact's prompt followed by its label but for the label's last token.

    All but the choices is on the CPU, from where batches go to the model.
    """

    first_block: int
    start: Float[Tensor, "fact pos d_model"]
    last: Int[Tensor, " fact"]  # the prompt's last token, after which the label's tokens are predicted one by one
    targets: Int[Tensor, "fact depth"]  # the label's tokens, -100 after the last
    choices: list[Int[Tensor, " _"]]  # by depth, the tokens that a label may have there


def finetune_relation(
    model: LanguageModel,
    relation: Relation,
    split: Split,
    labels: LabelMap,
    template: str = OPAQUE,
    config: FinetuneConfig | None = None,
    seed: int = 0,
    *,
    keep_model: bool = False,
) -> Finetuned:
    """Fine-tune a copy of the model to answer `template` with the labels of the training facts; the given model stays as it is.

    The loss is the cross-entropy of the label's tokens over the whole vocabulary; labels are then compared over the closed set.
    There is no dropout. `seed` decides the order of the subjects.

    Raises:
        ValueError: for an answer without a label, a `first_block` that the model does not have, or prompts that cannot be
            encoded (`encode_prompts`).
    """
    config = config or FinetuneConfig()
    if config.first_block >= model.cfg.n_layers:
        raise ValueError(f"first_block must be in 0..{model.cfg.n_layers - 1} for this model, got {config.first_block}")
    if missing := [answer for answer in relation.answers if answer not in labels.labels]:
        raise ValueError(f"relation {relation.name!r}: answers {missing} have no label")
    began = time.perf_counter()
    kind = resolve_asked(config.precision, model, config.batch_size)
    words = [continuation(model, f" {labels.label(answer)}") for answer in relation.answers]
    prompts = encode_prompts(model, relation, template)
    tuned = _with_own_blocks(model, config.first_block)
    task = _task(tuned, prompts, words, relation.codes, config.first_block, kind)
    history = _train(tuned, task, torch.tensor(split.train), config, kind, seed)
    scores = _scores(tuned, task, prompts, words)
    predictions = scores.argmax(dim=1)
    return Finetuned(
        scores,
        predictions,
        predictions == relation.codes,
        tuple(history),
        history[-1] == 1,
        time.perf_counter() - began,
        tuned if keep_model else None,
    )


def _with_own_blocks(model: LanguageModel, first_block: int) -> LanguageModel:
    """A copy of the model that shares all tensors but those of the blocks from `first_block` on and of the final norm."""
    own = {id(parameter) for parameter in _trained(model, first_block)}
    tensors = (*model.parameters(), *model.buffers())
    shared: list[object] = [tensor for tensor in tensors if id(tensor) not in own]
    shared += [model.tokenizer, model.hf_config, model.architecture]
    tuned = copy.deepcopy(model, {id(value): value for value in shared})
    for parameter in _trained(tuned, first_block):
        parameter.requires_grad_(True)
    return tuned


def _trained(model: LanguageModel, first_block: int) -> list[nn.Parameter]:
    return [p for module in (*model.blocks[first_block:], model.ln_final) for p in module.parameters()]


def _task(
    model: LanguageModel,
    prompts: Prompts,
    words: Sequence[tuple[int, ...]],
    codes: Int[Tensor, " fact"],
    first_block: int,
    precision: Kind,
) -> _Task:
    depth = max(map(len, words))
    of_answer = torch.tensor([[*word, *[-100] * (depth - len(word))] for word in words])
    targets = of_answer[codes]
    ids = functional.pad(prompts.ids, (0, depth - 1), value=model.pad_id)
    rows = torch.arange(len(ids))
    for j in range(depth - 1):
        at = prompts.lengths + j
        ids[rows, at] = torch.where(targets[:, j + 1] >= 0, targets[:, j], ids[rows, at])
    with inference(model, precision):
        start = torch.zeros(*ids.shape, model.cfg.d_model)
        for rows in _by_length(prompts.lengths, 64):
            width = int(prompts.lengths[rows].max()) + depth - 1
            batch = ids[rows, :width].to(device_of(model))
            start[rows, :width] = model(batch, stop_at_layer=first_block).float().cpu()
    choices = [of_answer[:, j][of_answer[:, j] >= 0].unique().to(device_of(model)) for j in range(depth)]
    return _Task(first_block, start, prompts.last, targets, choices)


def _train(
    model: LanguageModel, task: _Task, train: Int[Tensor, " train"], config: FinetuneConfig, precision: Kind, seed: int
) -> list[float]:
    """Train the model's own blocks; the accuracy of each epoch."""
    dtype = dtype_of(precision)
    parameters = _trained(model, config.first_block)
    optimizer = torch.optim.AdamW(parameters, lr=config.lr, weight_decay=config.weight_decay, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / (config.warmup_steps + 1)))
    order = torch.Generator().manual_seed(seed)
    unembedding = model.unembed.W_U.detach().T.contiguous().to(dtype or torch.float32)
    history: list[float] = []
    with ExitStack() as restore:
        restore.enter_context(mode(model, training=True))
        restore.enter_context(torch.enable_grad())
        restore.enter_context(fused(model, dtype, train_weights=True))
        while len(history) < config.max_epochs and not (history and history[-1] == 1 and len(history) >= config.min_epochs):
            n_right = torch.zeros((), device=unembedding.device)
            for rows in _batches(train, task.last, config.batch_size, order):
                logits, targets = _logits(model, task, rows, unembedding)
                # Summed over the tokens of a label, so that the loss is minus the log-probability of the label.
                loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / len(rows)
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(parameters, config.clip)
                optimizer.step()
                schedule.step()
                n_right += _right(logits.detach(), targets, task.choices).sum()
            history.append(n_right.item() / len(train))
    optimizer.zero_grad()
    return history


def _batches(
    train: Int[Tensor, " train"], lengths: Int[Tensor, " fact"], size: int, order: torch.Generator
) -> list[Int[Tensor, " _"]]:
    """The training facts in random order; of each few batches, those of similar length together, which saves padding."""
    shuffled = train[torch.randperm(len(train), generator=order)]
    batches = [rows[at] for rows in shuffled.split(4 * size) for at in _by_length(lengths[rows], size)]
    return [batches[i] for i in torch.randperm(len(batches), generator=order).tolist()]


def _by_length(lengths: Int[Tensor, " fact"], size: int) -> Sequence[Int[Tensor, " _"]]:
    return lengths.argsort(stable=True).split(size)


def _logits(
    model: LanguageModel, task: _Task, rows: Int[Tensor, " batch"], unembedding: Float[Tensor, "vocab d_model"]
) -> tuple[Float[Tensor, "batch depth vocab"], Int[Tensor, "batch depth"]]:
    """What the model predicts in place of each token of the labels, and these; the product is in the unembedding's type."""
    at = task.last[rows, None] + torch.arange(task.targets.shape[1])
    width, device = int(at.max()) + 1, unembedding.device
    resid: Tensor = model(
        task.start[rows, :width].to(device), start_at_layer=task.first_block, stop_at_layer=model.cfg.n_layers
    )
    final = model.ln_final(resid[torch.arange(len(rows))[:, None].to(device), at.to(device)])
    return functional.linear(final.to(unembedding.dtype), unembedding).float(), task.targets[rows].to(device)


def _right(
    logits: Float[Tensor, "batch depth vocab"], targets: Int[Tensor, "batch depth"], choices: Sequence[Int[Tensor, " _"]]
) -> Bool[Tensor, " batch"]:
    """Whether each token of the label is the likeliest of those that labels have in its place, after the tokens before it."""
    best = torch.stack([tokens[logits[:, depth, tokens].argmax(dim=1)] for depth, tokens in enumerate(choices)], dim=1)
    return ((best == targets) | (targets < 0)).all(dim=1)


def _scores(
    model: LanguageModel, task: _Task, prompts: Prompts, words: Sequence[tuple[int, ...]]
) -> Float[Tensor, "fact label"]:
    if max(map(len, words)) > 1:
        return closed_set_scores(model, prompts.rows(), words)
    tokens = [word[0] for word in words]
    unembedding = model.unembed.W_U.T.contiguous()
    scores = torch.empty(len(task.start), len(tokens))
    with inference(model):
        for rows in _by_length(task.last, 64):
            scores[rows] = _logits(model, task, rows, unembedding)[0][:, 0].log_softmax(dim=1)[:, tokens].cpu()
    return scores
