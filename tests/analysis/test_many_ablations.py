"""Every single ablation, run together, gives what the naive loop gives: one pass of the whole model for each."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from hc_lens.analysis import single_heads
from hc_lens.data.batches import Encoded
from hc_lens.forward import inference, run_batch
from hc_lens.hooks import Edit, captured, hooked, mlp_point, z_point
from hc_lens.means import Ablation, ActivationMeans
from hc_lens.metrics import edited_passes, read_rows_of_each
from hc_lens.models import Classifier, load_model
from hc_lens.models.resume import recorded, resumed
from hc_lens.units import Head, Mlp, Unit
from tests.models.tiny import FAMILIES, TINY, VOCAB, transformers_model

LENGTHS = (13, 4, 8, 6, 3, 9, 5, 7)


@pytest.fixture(scope="module", params=FAMILIES)
def model(request: pytest.FixtureRequest) -> Classifier:
    return load_model(hf_model=transformers_model(request.param))


def rows_for(model: Classifier) -> Encoded:
    generator = torch.Generator().manual_seed(3)
    n, tiny = sum(LENGTHS), TINY[model.family]
    types = torch.randint(0, 2, (n,), dtype=torch.int8, generator=generator) if tiny.has_types else None
    tokens = torch.randint(3, VOCAB, (n,), dtype=torch.int32, generator=generator)
    return Encoded(tokens, types, torch.tensor(LENGTHS), None, tiny.pad, model.family)


def groups_of(means: ActivationMeans) -> list[tuple[Unit, ...]]:
    mlps: list[tuple[Unit, ...]] = [(Mlp(layer),) for layer in range(means.n_layers)]
    return [*single_heads(means), *mlps, (Head(0, 1), Mlp(2)), (), (Head(1, 0), Head(2, 2))]


def naive(model: Classifier, rows: Encoded, edit_sets: Sequence[Sequence[Edit]]) -> list[Tensor]:
    found = [torch.zeros(len(rows), 3) for _ in edit_sets]
    with torch.no_grad():
        for logits, edits in zip(found, edit_sets, strict=True):
            for batch in rows.batches(3):
                logits[batch.rows] = model.run_with_hooks(batch, fwd_hooks=[tuple(edit) for edit in edits])
    return found


def together(
    model: Classifier, rows: Encoded, edit_sets: Sequence[Sequence[Edit]], base: Sequence[Edit] = (), narrow: bool = True
) -> list[Tensor]:
    with inference(model, narrow=narrow):
        return read_rows_of_each(model, list(rows.batches(3)), lambda logits, batch: logits, edit_sets, lambda: None, base=base)


@pytest.mark.parametrize("kind", ["mean", "resample"])
def test_all_single_ablations_equal_the_naive_loop(model: Classifier, kind: Ablation) -> None:
    """References that depend on the batch's shape too, though several ablations share a batch."""
    rows = rows_for(model)
    means = ActivationMeans.collect(model, rows, kind=kind)
    edit_sets = [means.edits(group) for group in groups_of(means)]
    expected, found = naive(model, rows, edit_sets), together(model, rows, edit_sets)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert (torch.stack(expected) - expected[-2]).abs().amax((1, 2)).sort().values[1] > 1e-4  # all but () do something


@pytest.mark.parametrize(("size", "most"), [(1, 1), (80, 2), (100_000, 6)])
def test_however_many_share_a_pass(size: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of three rows: 13 tokens wide, then narrower."""
    monkeypatch.setattr(edited_passes, "TOKENS_TOGETHER", size)
    model = load_model(hf_model=transformers_model("electra"))
    rows = rows_for(model)
    means = ActivationMeans.collect(model, rows)
    edit_sets = [means.edits([Head(1, index)]) for index in range(5)] + [means.edits([Mlp(1)])]
    expected, seen = naive(model, rows, edit_sets), []
    model.register_forward_pre_hook(lambda module, args: seen.append(len(args[0])))
    torch.testing.assert_close(together(model, rows, edit_sets), expected, atol=1e-5, rtol=0)
    assert max(seen[1 : 1 + -(-6 // most)]) == 3 * most, "the first pass is that of the full model"


def test_on_top_of_other_edits(model: Classifier) -> None:
    """Also where the edits' draws depend on the batch's shape."""
    rows = rows_for(model)
    means = ActivationMeans.collect(model, rows, kind="resample")
    base = means.edits([Head(1, 2), Mlp(0), Head(2, 0)])
    doubled = Edit(z_point(1), lambda z, hook: 2 * z)  # applied twice it would show
    edit_sets = [means.edits(group) for group in groups_of(means)]
    expected = naive(model, rows, [[*base, doubled, *edits] for edits in edit_sets])
    torch.testing.assert_close(together(model, rows, edit_sets, [*base, doubled]), expected, atol=1e-5, rtol=0)


def test_edits_elsewhere_run_the_whole_model_and_others_hooks_see_one_batch_at_a_time(model: Classifier) -> None:
    rows = rows_for(model)
    means = ActivationMeans.collect(model, rows)
    halved = Edit("blocks.1.attn.hook_v", lambda v, hook: v / 2)
    edit_sets = [[halved], [*means.edits([Head(2, 1)]), halved], means.edits([Mlp(1)]), means.edits([Mlp(2)])]
    expected = naive(model, rows, edit_sets)
    seen: list[int] = []
    watched = Edit(mlp_point(2), lambda x, hook: (seen.append(len(x)), x)[1])
    with hooked(model, [watched]):
        torch.testing.assert_close(together(model, rows, edit_sets), expected, atol=1e-5, rtol=0)
    assert set(seen) == {2, 3}


def test_what_precedes_an_edit_runs_once(model: Classifier) -> None:
    """Attention of a block whose heads are ablated, all of the blocks before it, and the embeddings."""
    batch = rows_for(model).batch(range(8))
    with inference(model), recorded(model, [2]) as inputs:
        expected = run_batch(model, batch)
        with resumed(model, 2, inputs[2]), captured(model, [z_point(2)]) as z, pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.nn.functional, "scaled_dot_product_attention", None)
            patch.setattr(torch.nn.functional, "embedding", None)
            torch.testing.assert_close(run_batch(model, batch), expected, atol=1e-6, rtol=0)
        with captured(model, [z_point(2)]) as seen:
            torch.testing.assert_close(run_batch(model, batch), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(seen[z_point(2)], z[z_point(2)], atol=1e-6, rtol=0)


def test_a_pass_that_kept_the_first_position_serves_edits_that_need_them_all(model: Classifier) -> None:
    rows = rows_for(model)
    means = ActivationMeans.collect(model, rows)
    whole = Edit(z_point(2), lambda z, hook: z - z.mean(1, keepdim=True))
    edit_sets = [means.edits([Head(2, 1)]), [whole]]
    torch.testing.assert_close(together(model, rows, edit_sets), naive(model, rows, edit_sets), atol=1e-5, rtol=0)
