"""The pruning loop: what it optimises, that runs do not feel one another, the paper's hidden settings, and honest failure."""

import dataclasses
import json
from math import nan

import pandas as pd
import pytest
import torch
from transformer_lens import HookedTransformer, HookedTransformerConfig
from transformers import BertConfig

from hc_lens.data.batches import Encoded
from hc_lens.gates import HardConcrete, gate_edits
from hc_lens.hooks import captured, hooked, mlp_point
from hc_lens.machine import memory_gib
from hc_lens.means import ActivationMeans, MeansError
from hc_lens.models import fused, new_model
from hc_lens.pruning import PruneConfig, PruneError, prune, prune_path
from hc_lens.pruning.advice import CLOSED, OPEN, Ended, warnings_of
from hc_lens.pruning.objective import kl_divergence, kl_to_full, lagrangian
from hc_lens.pruning.trained import TrainedGates
from hc_lens.pruning.training import HISTORY, GateTraining, data_order, frozen, runs_together, stream
from hc_lens.sample import Sample
from hc_lens.units import Head


def bert(seed=0, dropout=0.1, **changes):
    config = BertConfig(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=32,
        max_position_embeddings=16,
        initializer_range=0.5,  # logits far enough apart that a closed gate matters
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    config.update(changes)
    return new_model(config, labels=3, seed=seed)


def rows(n=64, low=3, high=9, vocab=20, seed=0):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(low, high, (n,), generator=generator)
    tokens = torch.randint(1, vocab, (int(lengths.sum()),), generator=generator)
    return Encoded(tokens.to(torch.int32), None, lengths, None, 0, f"rows-{n}-{low}-{high}-{seed}")


@pytest.fixture(scope="module")
def setting():
    model, data = bert(), rows()
    return model, data, ActivationMeans.collect(model, data)


SHORT = PruneConfig(sparsity=0.5, steps=40, ramp_steps=30, batch_size=8, max_length=16)


def test_runs_together_equal_runs_alone(setting):
    model, data, means = setting
    together = prune(model, data, means, SHORT, seeds=[42, 43, 44])
    for run, seed in enumerate([42, 43, 44]):
        alone = prune(model, data, means, SHORT, seeds=[seed])
        torch.testing.assert_close(alone.log_alpha[0], together.log_alpha[run], atol=1e-4, rtol=0)
        assert alone.subnetworks[0] == together.subnetworks[run]


def test_clipping_and_accumulation_are_per_run(setting):
    model, data, means = setting
    config = dataclasses.replace(SHORT, clip=0.01, accumulation=2, steps=6, ramp_steps=3, estimate="sampled", gate_mean=0.5)
    together = prune(model, data, means, config, seeds=[1, 2])
    alone = prune(model, data, means, config, seeds=[2])
    torch.testing.assert_close(alone.log_alpha[0], together.log_alpha[1], atol=1e-4, rtol=0)


def test_chunks_of_seeds_equal_one_chunk(setting):
    model, data, means = setting
    one = prune(model, data, means, SHORT, seeds=[1, 2, 3])
    two_runs = dataclasses.replace(SHORT, memory_gib=2.5 * 80 * 8 * int(data.lengths.max()) * 2 * 16 / 2**30)
    assert runs_together(model, data, two_runs) == 2
    chunks = prune(model, data, means, two_runs, seeds=[1, 2, 3])
    torch.testing.assert_close(one.log_alpha, chunks.log_alpha, atol=1e-4, rtol=0)


def test_memory_budget_decides_how_many_runs_share_a_forward_pass(setting):
    model, data, _ = setting
    longest = int(data.lengths.max())
    one_run = 80 * 8 * longest * 2 * 16  # bytes: rows x longest row x layers x width
    for runs in (1, 2, 5):
        budget = dataclasses.replace(SHORT, memory_gib=(runs + 0.5) * one_run / 2**30)
        assert runs_together(model, data, budget) == runs
    assert runs_together(model, data, dataclasses.replace(SHORT, memory_gib=1e-9)) == 1


def test_no_budget_is_more_than_half_of_what_the_device_has(setting, monkeypatch):
    model, data, _ = setting
    wide = dataclasses.replace(SHORT, memory_gib=1e6)
    most = runs_together(model, data, wide)
    assert most == runs_together(model, data, dataclasses.replace(wide, memory_gib=memory_gib(torch.device("cpu")) / 2))
    monkeypatch.setattr("hc_lens.machine.memory_gib", lambda device: 1e-9)
    assert runs_together(model, data, wide) == 1 < most


def test_runs_have_rows_of_their_own_but_long_batches_at_the_same_steps():
    lengths = torch.randint(4, 60, (2000,), generator=torch.Generator().manual_seed(0))
    data = Encoded(torch.ones(int(lengths.sum()), dtype=torch.int32), None, lengths, None, 0, "long")
    config = PruneConfig(steps=120, ramp_steps=100, batch_size=16)
    a, b = (lengths[data_order(data, config, seed)].amax(1).float() for seed in (1, 2))
    assert not torch.equal(data_order(data, config, 1), data_order(data, config, 2))
    assert (a - b).abs().mean() < 3
    assert a.std() > 10


def test_same_seed_same_result_and_seeds_differ(setting):
    model, data, means = setting
    a, b = (prune(model, data, means, SHORT, seeds=[7]) for _ in range(2))
    assert torch.equal(a.log_alpha, b.log_alpha)
    assert not torch.equal(a.log_alpha, prune(model, data, means, SHORT, seeds=[8]).log_alpha)


def test_streams_of_randomness_can_be_fixed_apart(setting):
    model, data, means = setting
    fixed = dataclasses.replace(SHORT, init_seed=0, noise_seed=0, order_seed=0)
    result = prune(model, data, means, fixed, seeds=[1, 2])
    assert torch.equal(result.log_alpha[0], result.log_alpha[1]), "nothing else depends on the seed"
    only_order = prune(model, data, means, dataclasses.replace(fixed, order_seed=None), seeds=[1, 2])
    assert not torch.equal(only_order.log_alpha[0], only_order.log_alpha[1])


def test_weights_stay_frozen_and_are_given_back(setting):
    model, data, means = setting
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    required = [p.requires_grad for p in model.parameters()]
    model.train()
    prune(model, data, means, SHORT, seeds=[1])
    assert model.training
    model.eval()
    assert all(p.grad is None for p in model.parameters())
    assert [p.requires_grad for p in model.parameters()] == required
    assert all(torch.equal(before[name], p) for name, p in model.named_parameters())


def test_frozen_is_undone_after_an_error(setting):
    model = setting[0]
    with pytest.raises(ZeroDivisionError), frozen(model, dropout=True):  # noqa: PT012
        assert model.training
        assert not any(p.requires_grad for p in model.parameters())
        raise ZeroDivisionError
    assert not model.training
    assert any(p.requires_grad for p in model.parameters())


def test_dropout_is_the_runs_own_and_leaves_the_global_random_state(setting):
    model, data, means = setting
    config = dataclasses.replace(SHORT, dropout=True, steps=8, ramp_steps=6, gate_mean=0.5)
    torch.manual_seed(123)
    before = torch.get_rng_state()
    together = prune(model, data, means, config, seeds=[1, 2])
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(321)
    alone = prune(model, data, means, config, seeds=[2])
    assert torch.equal(alone.log_alpha[0], together.log_alpha[1])
    off = prune(model, data, means, dataclasses.replace(config, dropout=False), seeds=[2])
    assert not torch.equal(alone.log_alpha, off.log_alpha)


def test_a_closed_mlp_gate_gives_exactly_the_mean_under_dropout(setting):
    """The gate acts after the output dropout, so that the mean itself is never dropped (PROTOCOL, gates)."""
    model, data, means = setting
    batch = data.batch(range(8))
    with frozen(model, dropout=True), fused(model), captured(model, [mlp_point(0)]) as before:
        model(batch)
    closed = gate_edits(means, torch.zeros(1, 2, 5))
    with frozen(model, dropout=True), fused(model), hooked(model, closed), captured(model, [mlp_point(0)]) as after:
        model(batch)
    assert (before[mlp_point(0)] == 0).any(), "dropout was on"
    assert torch.equal(after[mlp_point(0)], means.mlp[0].expand_as(after[mlp_point(0)]))


def test_a_pruned_subnetwork_says_where_it_came_from(setting, tmp_path):
    model, data, means = setting
    sub = prune(model, data, means, SHORT, seeds=[5]).subnetworks[0]
    facts = sub.provenance
    assert json.loads(facts["config"]) == SHORT.as_dict() | {"precision": "fp32"}, "what auto came to"
    assert facts["model"] == means.model
    assert facts["data"] == data.fingerprint
    assert facts["sparsity"] == sub.sparsity == 0.5
    assert {"trained_sparsity", "undecided", "torch", "transformer-lens", "transformers", "code", "threads"} <= set(facts)
    assert sub.save(tmp_path / "seed-5.safetensors").stat().st_size <= 4096


def test_target_is_reached_and_masks_hit_it_exactly(setting):
    model, data, means = setting
    result = prune(model, data, means, PruneConfig(sparsity=0.5, steps=200, ramp_steps=170, batch_size=8), seeds=[0, 1])
    assert [sub.sparsity for sub in result.subnetworks] == [0.5, 0.5]
    assert result.table()["trained_sparsity"].tolist() == pytest.approx([0.5, 0.5], abs=0.05)
    assert result.history.groupby("seed").size().tolist() == [200, 200]
    target = result.history.query("seed == 0")["target"].to_numpy()
    assert target[0] == 0
    assert target[34] == pytest.approx(0.1)
    assert target[170] == target[-1] == 0.5


def test_gates_find_the_units_that_matter():
    """A model whose logits depend on one head alone: at a sparsity that leaves three of ten units, every seed keeps it."""
    model = bert(dropout=0.0)
    with torch.no_grad():
        for layer, block in enumerate(model.blocks):
            block.mlp.W_out.zero_()
            block.mlp.b_out.zero_()
            keep = torch.zeros(4, 1, 1)
            if layer == 1:
                keep[2] = 4.0
            block.attn.W_O.mul_(keep)
    data = rows(128)
    means = ActivationMeans.collect(model, data)
    result = prune(model, data, means, PruneConfig(sparsity=0.7, steps=200, ramp_steps=160, batch_size=8), seeds=[0, 1, 2])
    for sub in result.subnetworks:
        assert Head(1, 2) in sub.heads
        assert len(sub.heads) + len(sub.mlps) == 3


def test_kl_and_lagrangian_by_hand():
    teacher, student = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.25, 0.75]]).log()
    # 0.5 ln(0.5/0.25) + 0.5 ln(0.5/0.75)
    assert kl_divergence(teacher, student).item() == pytest.approx(0.5 * 0.6931472 - 0.5 * 0.4054651, abs=1e-6)
    value = lagrangian(0.5, torch.tensor([0.2, 0.6]), torch.tensor([[2.0, 10.0], [2.0, 10.0]]))
    assert value.tolist() == pytest.approx([2 * 0.3 + 10 * 0.09, -2 * 0.1 + 10 * 0.01])


def test_teacher_is_the_full_model_without_dropout(setting):
    model, data, _ = setting
    loss = kl_to_full(model.train(), data, torch.arange(10))
    assert model.training
    model.eval()
    batch = data.batch(range(10))
    assert loss(model(batch), batch).abs().max() < 1e-6
    assert loss(torch.zeros(10, 3), batch).min() > 0


def paper_training(steps=3):
    """Three steps of the paper preset on a BERT-base-shaped model with random weights."""
    config = BertConfig(vocab_size=200, max_position_embeddings=32)
    model = new_model(config, labels=3)
    data = rows(256, 3, 6, vocab=200)
    means = ActivationMeans.collect(model, data, sample=Sample(32))
    paper = PruneConfig.paper(0.5)
    order = data_order(data, paper, 42)
    loss = kl_to_full(model, data, torch.unique(order[: steps * paper.accumulation]))
    return model, GateTraining(model, data, means, paper, [42], loss, [order])


def test_paper_preset_numbers():
    half, most = PruneConfig.paper(0.5), PruneConfig.paper(0.7)
    assert (half.ramp_steps, half.steps) == (9000, 9300)
    assert (most.ramp_steps, most.steps) == (10000, 10420)
    assert (half.batch_size, half.accumulation, half.max_length) == (32, 4, 128)
    assert (half.lr_gates, half.lr_multipliers, half.weight_decay, half.clip) == (0.1, 1.0, 0.01, 1.0)
    assert (half.gate_mean, half.gate_std, half.warmup_steps) == (10.0, 0.01, 200)
    assert half.dropout
    assert not half.bucket
    assert (half.estimate, half.discretisation) == ("sampled", "two_stage")
    assert [half.rate(k) for k in (0, 100, 200, 4750, 9300)] == [0.0, 0.5, 1.0, 0.5, 0.0]
    assert half.target(4500) == pytest.approx(0.25)
    assert half.target(9299) == 0.5


@pytest.mark.slow
def test_three_steps_of_the_paper_preset_on_bert_base():
    model, training = paper_training()
    start = training.log_alpha.detach().clone()
    assert start.shape == (1, 12, 13)
    assert start.mean().item() == pytest.approx(10, abs=0.01)
    assert start.std().item() == pytest.approx(0.01, rel=0.2)
    seen = []
    original = training.concrete.sample
    object.__setattr__(
        training.concrete, "sample", lambda a, u: seen.append((u, original(a, u), model.training)) or seen[-1][1]
    )
    with training:
        rates = []
        for _ in range(3):
            training.step()
            rates.append([group["lr"] for group in training.optimiser.param_groups])
    # One independent draw per micro-batch of 32, four per step; dropout on while gates train.
    assert len(seen) == 12
    assert all(u.shape == (1, 12, 13) for u, _, _ in seen)
    assert not torch.equal(seen[0][0], seen[1][0])
    assert all(train for _, _, train in seen)
    assert not model.training
    noise = HardConcrete().noise((64, 4, 12, 13), stream(42, None, 1))
    assert all(torch.equal(seen[4 * k + m][0][0], noise[k, m]) for k in range(3) for m in range(4))
    # Warm-up: rates 0, 1/200, 2/200 of 0.1 and of 1, lambda maximised; decay 0.01 on both groups.
    assert rates == [pytest.approx([0.1 * k / 200, k / 200]) for k in range(3)]
    gates, multipliers = training.optimiser.param_groups
    assert (gates["maximize"], multipliers["maximize"]) == (False, True)
    assert gates["weight_decay"] == multipliers["weight_decay"] == 0.01
    # Gates at 10 get (almost) no gradient; the decay acts: log_alpha shrinks by prod(1 - lr * 0.01).
    shrunk = start * (1 - 0.0005 * 0.01) * (1 - 0.001 * 0.01)
    assert (training.log_alpha.detach() - shrunk).abs().median() < 1e-5
    history = training.history[:3, 0]
    assert history[:, HISTORY.index("target")].tolist() == pytest.approx([0.5 * k / 9000 for k in range(3)])
    # The sampled estimate of the four draws, averaged.
    for k in range(3):
        by_hand = torch.stack([1 - g.mean() for _, g, _ in seen[4 * k : 4 * k + 4]]).mean()
        assert history[k, HISTORY.index("sparsity")].item() == pytest.approx(by_hand.item(), abs=1e-6)


def test_clipping_is_joint_over_gates_and_multipliers(setting):
    model, data, means = setting
    config = dataclasses.replace(SHORT, clip=1.0, gate_mean=0.0)
    order = data_order(data, config, 1)
    training = GateTraining(model, data, means, config, [1], kl_to_full(model, data, torch.arange(len(data))), [order])
    training.log_alpha.grad = torch.full_like(training.log_alpha, 3.0)
    training.multipliers.grad = torch.tensor([[4.0, 0.0]])
    norm = (9 * training.log_alpha.numel() + 16) ** 0.5
    training._clip(1.0)
    assert training.log_alpha.grad.flatten()[0].item() == pytest.approx(3 / norm)
    assert training.multipliers.grad.tolist() == [pytest.approx([4 / norm, 0.0])]
    training._clip(1.0)
    assert training.multipliers.grad.tolist() == [pytest.approx([4 / norm, 0.0], rel=1e-5)], (
        "a norm of one or less is left alone"
    )


def gpt2_tokens():
    torch.manual_seed(0)
    config = HookedTransformerConfig(
        n_layers=2, d_model=16, n_ctx=8, d_head=4, n_heads=4, d_mlp=32, d_vocab=12, act_fn="gelu", seed=0, device="cpu"
    )
    return HookedTransformer(config), torch.randint(0, 12, (48, 6))


def test_plain_language_model_with_a_next_token_contrast():
    """Reuse outside classification: keep what raises log p(token 3) - log p(token 5) after the prompt."""
    model, tokens = gpt2_tokens()

    def contrast(logits, batch):
        last = logits[:, -1].log_softmax(-1)
        return last[:, 5] - last[:, 3]

    means = ActivationMeans.collect(model, tokens)
    result = prune(model, tokens, means, PruneConfig(sparsity=0.5, steps=150, ramp_steps=120, batch_size=8), [0], contrast)
    sub = result.subnetworks[0]
    assert sub.sparsity == pytest.approx(0.5)
    with torch.no_grad():
        full = contrast(model(tokens), None).mean()
        kept = contrast(model.run_with_hooks(tokens, fwd_hooks=sub.fwd_hooks()), None).mean()
        opposite = contrast(model.run_with_hooks(tokens, fwd_hooks=(~sub).fwd_hooks()), None).mean()
    assert kept < full < opposite, "half of the units, chosen for the contrast, beat the full model; the other half does worse"


def test_default_loss_on_a_language_model_asks_for_a_loss():
    model, tokens = gpt2_tokens()
    means = ActivationMeans.collect(model, tokens)
    with pytest.raises(
        ValueError, match=r"HookedTransformer returns \(48, 6, 12\), not \(batch, label\) logits: give prune a loss"
    ):
        prune(model, tokens, means, PruneConfig(batch_size=48, steps=2, ramp_steps=1), [0])


def test_loss_that_is_not_per_row_is_refused(setting):
    model, data, means = setting
    with pytest.raises(ValueError, match=r"one value per row, \(8,\); it returned \(\)"):
        prune(model, data, means, SHORT, [0], lambda output, batch: output.mean())


@pytest.mark.parametrize(
    ("step", "advice"),
    [(11, r"lower lr_gates \(0\.1\)"), (0, "no gate had moved yet, so look at the loss function and the model's logits")],
)
def test_nan_is_an_error_that_names_the_step(setting, step, advice):
    model, data, means = setting
    calls = []

    def loss(output, batch):
        calls.append(0)
        return output.square().mean(1) * (float("nan") if len(calls) == step + 1 else 1.0)

    with pytest.raises(PruneError, match=rf"NaN or infinite at pruning step {step}: {advice}"):
        prune(model, data, means, SHORT, [0], loss)


def test_collapse_is_an_error_that_says_what_to_change(setting):
    model, data, means = setting
    timid = dataclasses.replace(SHORT, gate_mean=8.0, lr_multipliers=1e-6, lr_gates=1e-4)
    with pytest.raises(
        PruneError, match=r"1 of 1 seeds collapsed \(3: every gate ended open\).*too dense: raise steps or lr_gates \(now"
    ):
        prune(model, data, means, timid, [3])


def test_missed_targets_and_undecided_gates_are_warnings(setting):
    model, data, means = setting
    hurried = dataclasses.replace(SHORT, sparsity=0.9, steps=25, ramp_steps=20, gate_mean=0.5)
    result = prune(model, data, means, hurried, [3])
    assert any("seed 3 (" in w and "missed the target sparsity 0.9" in w for w in result.warnings)
    assert result.subnetworks[0].sparsity == 0.9, "top-k hits the target whatever the training did, so the warning is needed"


def test_what_to_change_follows_from_the_side_of_the_miss_and_is_said_once_for_all_seeds():
    """Collapsed seeds tell a side, too: gates all closed are an overshoot."""

    def told(*ended: Ended) -> tuple[str, ...]:
        return warnings_of(SHORT, ended)

    (above,) = told(Ended(1, 0.804, 0.0), Ended(2, 0.5, 0.1), Ended(3, 0.56, 0.0))
    assert above == (
        "seeds 1 (0.804) and 3 (0.560) missed the target sparsity 0.5 by more than 5 points before the cut; "
        f"too sparse: raise steps or lower lr_multipliers (now {SHORT.steps} and {SHORT.lr_multipliers:g})"
    )
    (below,) = told(Ended(1, 0.2, 0.0))
    assert "too dense: raise steps or lr_gates" in below
    first, second = told(Ended(1, 0.804, 0.0), Ended(2, nan, nan, CLOSED), Ended(3, nan, nan, CLOSED))
    assert first == "2 of 3 seeds collapsed (2, 3: every gate ended closed), so there is no subnetwork to cut at sparsity 0.5"
    assert "too sparse: raise steps or lower lr_multipliers" in second
    (*_, mixed) = told(Ended(1, 0.804, 0.0), Ended(2, nan, nan, OPEN))
    assert mixed.endswith(f"runs ended on both sides of the target: raise steps (now {SHORT.steps})")
    assert told(Ended(1, 0.5, 0.11)) == (
        "seed 1 (11%) left more than 10% of the gates undecided (|log_alpha| < 1.6) at sparsity 0.5, so the mask depends on "
        "the cut; raise lr_gates or steps",
    )
    (*_, undecided) = told(Ended(1, 0.3, 0.2), Ended(2, 0.5, 0.3))
    assert undecided.startswith("seeds 1 (20%) and 2 (30%) left more than")
    assert undecided.endswith("so the mask depends on the cut"), "one advice for all"
    assert told(Ended(1, 0.46, 0.05)) == ()


def test_a_collapsed_seed_is_an_outcome_and_the_others_are_what_they_are_alone(setting, monkeypatch):
    model, data, means = setting
    alone = prune(model, data, means, SHORT, [3, 5])
    monkeypatch.setattr(TrainedGates, "collapsed", lambda self: {4: CLOSED} if 4 in self.seeds else {})
    result = prune(model, data, means, SHORT, [3, 4, 5])
    assert result.collapsed == {4: CLOSED}
    assert [sub.seed for sub in result.subnetworks] == [3, 5]
    torch.testing.assert_close(result.log_alpha, alone.log_alpha, atol=1e-3, rtol=1e-3)  # the rows of the subnetworks
    pd.testing.assert_frame_equal(result.table(), alone.table(), atol=1e-3)
    assert set(result.history["seed"]) == {3, 4, 5}, "how it collapsed can be seen"
    assert result.warnings[0].startswith("1 of 3 seeds collapsed (4: every gate ended closed)")
    path = prune_path(model, data, means, SHORT, [0.25, SHORT.sparsity], [3, 4])
    assert path.collapsed == {4: CLOSED}
    assert {target: [sub.seed for sub in subs] for target, subs in path.subnetworks.items()} == {0.25: [3], 0.5: [3]}
    assert {target: len(gates) for target, gates in path.log_alpha.items()} == {0.25: 1, 0.5: 1}
    assert set(path.table()["seed"]) == {3}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sparsity": 1.0}, r"sparsity: the target must be in \(0, 1\), got 1\.0"),
        ({"sparsity": 0.0}, r"sparsity: the target must be in \(0, 1\), got 0\.0"),
        ({"steps": 0}, "steps: must be at least 1, got 0"),
        ({"ramp_steps": 700}, r"ramp_steps: must be in 0\.\.steps = 600, got 700"),
        ({"lr_gates": -0.1}, r"lr_gates: must be positive and finite, got -0\.1"),
        ({"clip": 0.0}, r"clip: must be positive or None, got 0\.0"),
    ],
)
def test_config_errors_name_field_and_value(change, message):
    with pytest.raises(ValueError, match=message):
        PruneConfig(**change)


def test_means_of_another_model_and_doubled_seeds_are_refused(setting):
    model, data, means = setting
    with pytest.raises(MeansError, match="belong to another model"):
        prune(bert(seed=9), data, means, SHORT, [0])
    with pytest.raises(ValueError, match=r"seeds: needs at least one, all different, got \[1, 1\]"):
        prune(model, data, means, SHORT, [1, 1])


def test_bf16_gives_finite_gates_near_those_of_fp32(setting):
    model, data, means = setting
    reference = prune(model, data, means, SHORT, seeds=[5])
    low = prune(model, data, means, dataclasses.replace(SHORT, precision="bf16"), seeds=[5])
    assert low.log_alpha.dtype == torch.float32
    assert low.log_alpha.isfinite().all()
    assert (low.log_alpha - reference.log_alpha).abs().median() < 0.3
