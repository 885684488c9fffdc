"""Subnetworks as values: set algebra, edits, a few hundred bytes on disk, and refusal of another model's."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hc_lens.hooks import hooked
from hc_lens.means import ActivationMeans, MeansError
from hc_lens.subnetwork import Subnetwork, SubnetworkError
from hc_lens.units import Head, Mlp
from tests.micro import MicroModel, micro_model

MODEL = micro_model()
IDS = torch.tensor([[1, 2, 1], [2, 2, 0]])
MASK = torch.ones_like(IDS)
MEANS = ActivationMeans.collect(MODEL, IDS)

masks = st.lists(st.booleans(), min_size=6, max_size=6).map(lambda bits: torch.tensor(bits).view(2, 3))


def sub(mask, seed=None):
    return Subnetwork(torch.as_tensor(mask, dtype=torch.bool), MEANS, seed)


def units(subnetwork):
    return subnetwork.heads | subnetwork.mlps


@given(masks, masks)
def test_operators_are_set_operations_on_the_kept_units(a, b):
    x, y = sub(a), sub(b)
    assert units(x & y) == units(x) & units(y)
    assert units(x | y) == units(x) | units(y)
    assert units(x - y) == units(x) - units(y)
    assert units(~x) == x.closed
    assert ~(x & y) == ~x | ~y
    assert x - y == x & ~y
    assert hash(~~x) == hash(x)


@given(masks)
def test_without_and_having_return_new_subnetworks(a):
    x = sub(a)
    y = x.without(Head(0, 1), Mlp(1))
    assert units(y) == units(x) - {Head(0, 1), Mlp(1)}
    assert units(y.having(Head(0, 1))) == units(y) | {Head(0, 1)}
    assert torch.equal(x.mask, a)
    assert x.sparsity == pytest.approx(len(x.closed) / 6)


def test_names_are_by_layer_and_index():
    x = sub([[1, 0, 1], [0, 1, 0]])
    assert {str(unit) for unit in units(x)} == {"L0.H0", "L0.MLP", "L1.H1"}


@torch.no_grad()
def test_edits_close_exactly_the_closed_units():
    x = sub([[1, 0, 1], [0, 1, 0]])
    mean_token = MEANS.head[0, 1, 0]
    with hooked(MODEL, x.edits()):
        masked = MODEL(IDS, MASK)[:, 0]
    activations = MODEL.values[:, :, IDS]  # layer unit batch pos
    by_hand = torch.where(x.mask[:, :, None, None], activations, torch.tensor(0.0))
    by_hand[0, 1] = mean_token
    by_hand[1, 0], by_hand[1, 2] = MEANS.head[1, 0, 0], MEANS.mlp[1, 0]
    torch.testing.assert_close(masked, (MODEL.weights[:, :, None, None] * by_hand).sum((0, 1, 3)))
    via_lens = MODEL.run_with_hooks(IDS, MASK, fwd_hooks=x.fwd_hooks())[:, 0]
    assert torch.equal(via_lens, masked)


@torch.no_grad()
def test_everything_kept_is_the_full_model_and_a_layer_without_heads_works():
    with hooked(MODEL, sub(torch.ones(2, 3)).edits()):
        assert torch.equal(MODEL(IDS, MASK), MODEL(IDS, MASK))
    x = sub([[0, 0, 1], [1, 1, 1]])
    with hooked(MODEL, x.edits()):
        assert MODEL(IDS, MASK).isfinite().all()


def test_round_trip_on_disk_is_small_and_stores_means_once(tmp_path):
    x = Subnetwork(
        sub([[1, 0, 1], [0, 1, 0]]).mask, MEANS, 42, {"target": 0.5, "code": "c" * 64, "config": "d" * 64, "undecided": 0.01}
    )
    y = sub([[0, 0, 1], [0, 1, 0]], seed=43)
    for each in (x, y):
        each.save(tmp_path / f"seed-{each.seed}.safetensors")
    assert Subnetwork.load(tmp_path / "seed-42.safetensors", MODEL) == x
    assert Subnetwork.load(tmp_path / "seed-42.safetensors").provenance == x.provenance
    assert Subnetwork.load(tmp_path / "seed-43.safetensors").seed == 43
    assert len(list((tmp_path / "means").iterdir())) == 1
    assert (tmp_path / "seed-42.safetensors").stat().st_size <= 4096


def test_a_bert_base_mask_fits_in_four_kilobytes(tmp_path):
    means = ActivationMeans("mean", torch.zeros(12, 12, 2), torch.zeros(12, 4), 1, "m", "d")
    path = Subnetwork(
        torch.ones(12, 13, dtype=torch.bool), means, 42, {"code": "c" * 64, "model": "m" * 64, "data": "d" * 64}
    ).save(tmp_path / "seed-42.safetensors")
    assert path.stat().st_size <= 4096


LIMITED = """
import resource, sys
from pathlib import Path
import torch
from hc_lens.means import ActivationMeans
from hc_lens.subnetwork import Subnetwork
means = ActivationMeans("mean", torch.zeros(2, 2, 400), torch.zeros(2, 800), 1, "m", "d")
sub = Subnetwork(torch.ones(2, 3, dtype=torch.bool), means, 42, {"note": "a" * 4000})
folder = Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
for path, write in ((folder / "means", means.save), (folder / "seed-42.safetensors", sub.save)):
    try:
        write(path)
    except OSError as error:
        assert error.errno == 27 and "nothing was written" in str(error), error
    else:
        raise AssertionError(f"{path} was written past the limit")
print([str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()])
"""


def test_a_full_disk_leaves_no_half_written_subnetwork(tmp_path):
    done = subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_loading_onto_another_model_is_refused(tmp_path):
    path = sub([[1, 0, 1], [0, 1, 0]]).save(tmp_path / "s.safetensors")
    other = MicroModel(MODEL.values.detach() + 1, MODEL.weights.detach())
    with pytest.raises(MeansError, match="belong to another model"):
        Subnetwork.load(path, other)


def test_subnetwork_without_its_means_is_an_error(tmp_path):
    path = sub([[1, 0, 1], [0, 1, 0]]).save(tmp_path / "s.safetensors")
    (tmp_path / "means" / f"{MEANS.digest}.safetensors").unlink()
    with pytest.raises(MeansError, match="silently be zero ablation"):
        Subnetwork.load(path)


def test_paths_may_be_text(tmp_path):
    path = sub([[True, False, True]] * 2, seed=3).save(str(tmp_path / "sub.safetensors"))
    assert Subnetwork.load(str(path)) == sub([[True, False, True]] * 2)
    assert ActivationMeans.load(MEANS.save(str(tmp_path / "others"))).digest == MEANS.digest
    with pytest.raises(SubnetworkError, match=r"absent.safetensors does not hold a subnetwork"):
        Subnetwork.load(str(tmp_path / "absent.safetensors"))


def test_damaged_files_are_named(tmp_path):
    path = sub([[1, 0, 1], [0, 1, 0]]).save(tmp_path / "s.safetensors")
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(SubnetworkError, match=r"s\.safetensors does not hold a subnetwork"):
        Subnetwork.load(path)
    with pytest.raises(SubnetworkError, match="absent"):
        Subnetwork.load(tmp_path / "absent.safetensors")


def test_units_outside_the_model_are_named():
    with pytest.raises(ValueError, match=r"L5\.H0 is not in this model"):
        sub(torch.ones(2, 3)).without(Head(5, 0))


def test_masks_and_means_of_different_models_do_not_mix():
    with pytest.raises(SubnetworkError, match=r"a mask of \(3, 3\)"):
        sub(torch.ones(3, 3))
    other = ActivationMeans.collect(MODEL, IDS[:1])
    with pytest.raises(SubnetworkError, match="different means"):
        sub(torch.ones(2, 3)) & Subnetwork(torch.ones(2, 3, dtype=torch.bool), other)
