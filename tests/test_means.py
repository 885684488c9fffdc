"""Reference activations: what they are the mean of, what they refuse, and what an ablation with them does."""

import inspect

import pytest
import torch
from transformers import BertConfig

from hc_lens.data.batches import Encoded
from hc_lens.data.sampling import some_rows
from hc_lens.hooks import captured, hooked, mlp_point, z_point
from hc_lens.means import ActivationMeans, MeansError
from hc_lens.models import new_model
from hc_lens.sample import Sample
from hc_lens.units import Head, Mlp
from tests.micro import micro_model

# Four rows of mixed length, tokens 1..9.
LENGTHS = torch.tensor([3, 5, 2, 5])
TOKENS = torch.tensor([1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 1, 2, 9, 8, 7])
MIXED = Encoded(TOKENS.to(torch.int32), None, LENGTHS, None, 0, "mixed")


def small_bert(seed=0):
    config = BertConfig(
        vocab_size=11,
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=16,
        max_position_embeddings=8,
    )
    return new_model(config, labels=3, seed=seed)


@torch.no_grad()
def row_activations(model, point):
    """The point's activations of each row run alone, without padding, one tensor per row."""
    kept = []
    for row in range(len(MIXED)):
        with captured(model, [point]) as seen:
            model(MIXED.batch([row]))
        kept.append(seen[point][0])
    return kept


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_streamed_means_equal_full_data_means_without_padding(batch_size):
    model = small_bert()
    means = ActivationMeans.collect(model, MIXED, sample=Sample(batch_size=batch_size))
    assert means.tokens == 15
    for layer in range(2):
        heads, mlps = row_activations(model, z_point(layer)), row_activations(model, mlp_point(layer))
        torch.testing.assert_close(means.head[layer], torch.cat(heads).mean(0), atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(means.mlp[layer], torch.cat(mlps).mean(0), atol=1e-6, rtol=1e-5)


def test_means_by_position_average_the_rows_that_reach_it():
    model = small_bert()
    means = ActivationMeans.collect(model, MIXED, kind="position", sample=Sample(batch_size=2))
    rows = row_activations(model, z_point(1))
    for position in range(5):
        reaching = torch.stack([row[position] for row in rows if len(row) > position])
        torch.testing.assert_close(means.head[1, position], reaching.mean(0), atol=1e-6, rtol=1e-5)
    with pytest.raises(MeansError, match="a batch of 6 positions, but means for 5"), hooked(model, means.edits([Head(0, 0)])):
        model(torch.ones(1, 6, dtype=torch.long))


def test_zero_ablation_is_zero():
    model = small_bert()
    means = ActivationMeans.collect(model, MIXED, kind="zero")
    assert means.head.shape == (2, 3, 4)
    assert not means.head.any()
    assert not means.mlp.any()


@torch.no_grad()
def test_resampled_values_are_the_pools_and_repeat():
    model = small_bert()
    means = ActivationMeans.collect(model, MIXED, kind="resample", pool=7, sample=Sample(batch_size=2))
    assert means.head.shape == (2, 7, 3, 4)
    everything = torch.cat(row_activations(model, z_point(0)))
    for sample in means.head[0]:
        assert (everything - sample).abs().amax((1, 2)).min() < 1e-6, "a pool entry is some real token's activation"
    batch = MIXED.batch([0, 1])
    with hooked(model, means.edits([Head(0, 1)])), captured(model, [z_point(0)]) as seen:
        first = model(batch)
        drawn = seen[z_point(0)][:, :, 1]
        assert torch.equal(first, model(batch))
    distance = (drawn.unsqueeze(2) - means.head[0, :, 1]).abs().amax(-1)
    assert (distance.amin(-1) == 0).all()


@torch.no_grad()
def test_ablating_units_replaces_them_everywhere_and_leaves_the_others():
    model = small_bert()
    means = ActivationMeans.collect(model, MIXED)
    batch = MIXED.batch([0, 1, 2, 3])
    with captured(model, [z_point(0)]) as before:
        model(batch)
    with hooked(model, means.edits([Head(0, 2), Mlp(1)])), captured(model, [z_point(0), mlp_point(1)]) as seen:
        model(batch)
    z = seen[z_point(0)]
    assert torch.equal(z[:, :, 2], means.head[0, 2].expand_as(z[:, :, 2]))
    torch.testing.assert_close(z[:, :, :2], before[z_point(0)][:, :, :2])
    assert torch.equal(seen[mlp_point(1)], means.mlp[1].expand_as(seen[mlp_point(1)]))


def test_collecting_leaves_mode_and_hooks_as_they_were():
    model = small_bert().train()
    means = ActivationMeans.collect(model, MIXED)
    assert model.training
    assert means.digest == ActivationMeans.collect(model, MIXED).digest, "dropout is off while means are collected"


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_sample_is_of_random_rows_that_its_seed_draws_and_the_means_tell_it(seed):
    model = small_bert()
    means = ActivationMeans.collect(model, MIXED, Sample(2, seed))
    rows = some_rows(len(MIXED), 2, seed)
    drawn = torch.cat([row_activations(model, z_point(0))[row] for row in rows])
    torch.testing.assert_close(means.head[0], drawn.mean(0), atol=1e-6, rtol=0)
    assert len({ActivationMeans.collect(model, MIXED, Sample(2, other)).data for other in range(3)}) == 3
    every = {ActivationMeans.collect(model, MIXED, Sample(rows, seed)).data for rows in (None, 4, 9)}
    assert every == {"mixed[:4]"}, "where no row is left out, no seed decided which"


def test_no_rows_are_refused():
    with pytest.raises(ValueError, match="max_rows must be at least 1, got 0"):
        ActivationMeans.collect(micro_model(), torch.tensor([[1, 2]]), sample=Sample(0))


def test_save_and_load_round_trip_under_the_digest(tmp_path):
    means = ActivationMeans.collect(small_bert(), MIXED, kind="resample", pool=3, sample=Sample(seed=5))
    path = means.save(tmp_path)
    assert path.name == f"{means.digest}.safetensors"
    loaded = ActivationMeans.load(path)
    assert loaded.digest == means.digest
    assert (loaded.kind, loaded.seed, loaded.tokens) == ("resample", 5, 15)


def test_absent_means_are_an_error_never_zeros(tmp_path):
    with pytest.raises(
        MeansError, match=r"no means at .*missing\.safetensors: an ablation without its means would silently be zero"
    ):
        ActivationMeans.load(tmp_path / "missing.safetensors")


def test_damaged_or_renamed_means_are_refused(tmp_path):
    path = ActivationMeans.collect(small_bert(), MIXED).save(tmp_path)
    renamed = path.rename(tmp_path / f"{'0' * 64}.safetensors")
    with pytest.raises(MeansError, match="not the one in its name"):
        ActivationMeans.load(renamed)
    renamed.write_bytes(renamed.read_bytes()[:100])
    with pytest.raises(MeansError, match="does not hold activation means"):
        ActivationMeans.load(renamed)


def test_means_of_another_model_are_refused():
    means = ActivationMeans.collect(small_bert(seed=0), MIXED)
    with pytest.raises(MeansError, match="these means belong to another model"):
        means.require_model(small_bert(seed=1))


def test_units_outside_the_model_are_named():
    means = ActivationMeans.collect(micro_model(), torch.tensor([[1, 2]]))
    with pytest.raises(ValueError, match=r"L2\.H0 is not in this model: layers are 0\.\.1, heads are 0\.\.1"):
        means.edits([Head(2, 0)])
    with pytest.raises(ValueError, match=r"L1\.H2 is not in this model"):
        means.edits([Head(1, 2)])


def test_unknown_kind_names_the_allowed():
    with pytest.raises(ValueError, match=r"must be one of \['mean', 'position', 'zero', 'resample'\], got 'median'"):
        # Past the tests' own type check, as a user calls it.
        inspect.unwrap(ActivationMeans.collect.__func__)(ActivationMeans, micro_model(), torch.tensor([[1, 2]]), kind="median")
