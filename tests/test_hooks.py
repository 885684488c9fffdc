"""An edit changes exactly its hook point, is gone afterwards, and never silently does nothing."""

import pytest
import torch

from hc_lens.hooks import Edit, HookError, captured, hooked, z_point
from tests.micro import micro_model

IDS, MASK = torch.tensor([[1, 2]]), torch.tensor([[1, 1]])


def zero(activation, hook):
    return torch.zeros_like(activation)


def n_hooks(model):
    return sum(len(point._forward_hooks) for point in model.hook_points()) + len(model._forward_hooks)


def test_edit_zeroes_one_layers_heads_and_nothing_else():
    model = micro_model()
    full = model(IDS, MASK)[0, 0]
    with hooked(model, [Edit(z_point(0), zero)]):
        edited = model(IDS, MASK)[0, 0]
    # Heads of layer 0 give (1 - 2) for token 1 and twice that for token 2.
    assert torch.isclose(full - edited, torch.tensor(-3.0))


def test_hooks_are_restored_after_use_and_after_an_error():
    model = micro_model()
    before = n_hooks(model)
    model.add_hook(z_point(1), zero)
    with hooked(model, [Edit(z_point(0), zero)]), hooked(model, [Edit(z_point(1), zero)]):
        assert n_hooks(model) > before + 1
    with pytest.raises(ZeroDivisionError), hooked(model, [Edit(z_point(0), zero)]):
        raise ZeroDivisionError
    assert n_hooks(model) == before + 1, "the user's own hook stays, ours are gone"


def test_edits_at_one_point_apply_in_order():
    model = micro_model()
    edits = [Edit(z_point(0), lambda x, hook: x + 1), Edit(z_point(0), lambda x, hook: x * 0)]
    with hooked(model, edits):
        in_order = model(IDS, MASK)
    with hooked(model, [Edit(z_point(0), zero)]):
        assert torch.equal(model(IDS, MASK), in_order)


def test_unknown_hook_point_names_the_nearest():
    missing = [Edit("blocks.0.attn.hook_zz", zero)]
    expected = r"no hook point 'blocks\.0\.attn\.hook_zz'; the nearest are .*blocks\.0\.attn\.hook_z'"
    with pytest.raises(HookError, match=expected), hooked(micro_model(), missing):
        pass


def test_hook_point_that_does_not_fire_is_an_error():
    model = micro_model()
    with pytest.raises(HookError, match=r"'unused' did not fire in 1 forward pass"), hooked(model, [Edit("unused", zero)]):
        model(IDS, MASK)


def test_no_forward_pass_is_no_complaint():
    with hooked(micro_model(), [Edit("unused", zero)]):
        pass


def test_captured_activations_are_the_models_own():
    model = micro_model()
    with captured(model, [z_point(0)]) as seen:
        model(IDS, MASK)
    assert torch.equal(seen[z_point(0)], torch.tensor([[[[1.0], [2.0]], [[2.0], [4.0]]]]))
    assert not seen[z_point(0)].requires_grad
