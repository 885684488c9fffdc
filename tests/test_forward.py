"""What is no input of a model, and weights that are no numbers, are named wherever computing starts."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformer_lens import HookedTransformer, HookedTransformerConfig

from hc_lens.data.batches import Encoded
from hc_lens.data.task import Split, Task
from hc_lens.forward import inputs_of
from hc_lens.hooks import HookedModel
from hc_lens.means import ActivationMeans
from hc_lens.metrics import evaluate, predict
from hc_lens.models import Classifier, fingerprint, load_model
from hc_lens.pruning import PruneConfig, prune
from hc_lens.train import TrainConfig, finetune
from tests.models.tiny import batch, tokenizer, transformers_model


def language_model(device: str = "cpu") -> HookedTransformer:
    return HookedTransformer(
        HookedTransformerConfig(n_layers=1, d_model=8, n_ctx=16, d_head=4, n_heads=2, d_vocab=37, act_fn="gelu", device=device)
    )


MODELS = {"classifier": lambda: load_model(hf_model=transformers_model("bert")), "language model": language_model}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> HookedModel:
    return MODELS[request.param]()


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (torch.tensor([1, 2]), r"tokens must have two axes, \[batch pos\], got shape \[2\]: give one row as"),
        (torch.zeros(2, 17, dtype=torch.long), "a row has 17 tokens; this model reads at most 16"),
        (torch.tensor([[1], [37]]), "row 1 has token id 37 at position 0; this model has the tokens 0 to 36"),
        (torch.tensor([[0.5]]), "token ids must be integers, got float32"),
        (np.array([1]), r"got shape \[1\]"),
        (torch.zeros(1, 2, dtype=torch.long, device="meta"), "tokens is on the meta device"),
        (Encoded(torch.zeros(20).int(), None, torch.tensor([17, 3]), None, 0, "x"), "a row has 17 tokens"),
        (Encoded(torch.full((3,), 99).int(), None, torch.tensor([3]), None, 0, "x"), "token id 99"),
    ],
)
def test_what_is_no_input_is_named(model: HookedModel, tokens: object, message: str) -> None:
    for take in (inputs_of, predict, ActivationMeans.collect):
        with pytest.raises(ValueError, match=message):
            take(model, tokens)


def test_arrays_of_numpy_are_tokens(model: HookedModel) -> None:
    tokens = torch.tensor([[5, 6, 7], [8, 9, 3]])
    torch.testing.assert_close(predict(model, tokens.numpy()), predict(model, tokens))


def test_a_model_on_the_meta_device_cannot_be_run() -> None:
    for meta in (language_model("meta"), load_model(hf_model=transformers_model("bert")).to("meta")):
        with pytest.raises(ValueError, match="device 'meta' holds shapes and no values"):
            predict(meta, torch.tensor([[5, 6]]))
        with pytest.raises(
            ValueError, match=f"{type(meta).__name__} is on the meta device, where .* has a shape and no values"
        ):
            ActivationMeans.collect(meta, torch.tensor([[5, 6]]))


def test_a_model_on_the_meta_device_is_neither_pruned_nor_trained_nor_saved(tmp_path: Path) -> None:
    model, tokens = load_model(hf_model=transformers_model("bert"), tokenizer=tokenizer()), torch.tensor([[5, 6], [7, 8]])
    means = ActivationMeans.collect(model, tokens)
    task, config = small_task(model), PruneConfig(sparsity=0.5, steps=2, ramp_steps=1, batch_size=2)
    model.to("meta")
    calls: list[Callable[[], object]] = [
        lambda: prune(model, tokens, means, config, seeds=[1]),
        lambda: evaluate(model, task, trained=False),
        lambda: finetune(model, task, TrainConfig(steps=2, batch_size=2), tmp_path / "run"),
        lambda: model.save_pretrained(tmp_path / "saved"),
        lambda: fingerprint(model),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"on the meta device, where .* has a shape and no values"):
            call()
    assert not list(tmp_path.iterdir())


def small_task(model: Classifier) -> Task:
    split = Split("s", ("the cat",) * 4, ("dog",) * 4, (0, 1, 2, 0), model.label_names, (0, 1, 2))
    return Task("t", model.label_names, split, {"s": split}, {})


@pytest.mark.parametrize("name", ["classifier.weight", "blocks.1.attn.W_Q"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_named_where_they_are_used(name: str, value: float, tmp_path: Path) -> None:
    model, tokens = load_model(hf_model=transformers_model("bert"), tokenizer=tokenizer()), batch("bert").input_ids[:, :1] + 3
    means = ActivationMeans.collect(model, tokens)
    with torch.no_grad():
        model.get_parameter(name).view(-1)[5] = value
    cause = rf"1 tensors of the weights hold NaN or infinity: {name} \(1 of"
    with pytest.raises(ValueError, match=cause):
        evaluate(model, small_task(model), trained=False)
    with pytest.raises(ValueError, match=cause):
        finetune(model, small_task(model), TrainConfig(steps=2, batch_size=2), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match=cause):
        ActivationMeans.collect(model, tokens)
    with pytest.raises(ValueError, match=cause):
        prune(model, tokens, means, PruneConfig(sparsity=0.5, steps=2, ramp_steps=1, batch_size=2), seeds=[1])
