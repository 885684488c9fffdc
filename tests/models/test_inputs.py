"""Input that would be read wrongly is refused; what means the same is read the same."""

import pytest
import torch

from hc_lens.models import Classifier, load_model
from hc_lens.models.inputs import check_tokens, last_real_position
from tests.models.tiny import FAMILIES, batch, transformers_model


@pytest.fixture(scope="module", params=FAMILIES)
def model(request: pytest.FixtureRequest) -> Classifier:
    return load_model(hf_model=transformers_model(request.param))


def test_left_padding_is_refused_by_name(model: Classifier) -> None:
    tokens = batch(model.family)
    with pytest.raises(ValueError, match="left padding"):
        model(tokens.input_ids.flip(1), tokens.attention_mask.flip(1))
    with pytest.raises(ValueError, match="left padding"):
        model(torch.tensor([[model.pad_id, 5, 6], [5, 6, 7]]))


def test_a_hole_in_the_mask_is_refused(model: Classifier) -> None:
    with pytest.raises(ValueError, match="hole"):
        model(torch.tensor([[5, 6, 7]]), torch.tensor([[1, 0, 1]]))


def test_a_row_of_nothing_but_padding_is_refused(model: Classifier) -> None:
    with pytest.raises(ValueError, match="padding"):
        model(torch.tensor([[5, 6], [5, 6]]), torch.tensor([[1, 1], [0, 0]]))


def test_rows_longer_than_the_model_reads_are_refused(model: Classifier) -> None:
    assert model(torch.full((1, 16), 5)).shape == (1, 3)
    with pytest.raises(ValueError, match="17 tokens; this model reads at most 16"):
        model(torch.full((1, 17), 5))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.float32])
def test_masks_of_any_type_mean_the_same(model: Classifier, dtype: torch.dtype) -> None:
    tokens = batch(model.family)
    torch.testing.assert_close(model(tokens._replace(attention_mask=tokens.attention_mask.to(dtype))), model(tokens))


def test_a_mask_of_another_shape_is_refused(model: Classifier) -> None:
    tokens = batch(model.family)
    with pytest.raises(ValueError, match=r"attention_mask has shape \(4, 12\), input_ids \(4, 13\)"):
        model(tokens.input_ids, tokens.attention_mask[:, 1:])
    with pytest.raises(ValueError, match=r"token_type_ids has shape \(4, 12\)"):
        model(*tokens[:2], torch.zeros(4, 12, dtype=torch.long))


def test_text_without_a_tokenizer_is_refused(model: Classifier) -> None:
    with pytest.raises(ValueError, match="no tokenizer"):
        model("the cat")


def test_the_last_real_position_counts_no_padding() -> None:
    ids = torch.tensor([[4, 5, 6], [4, 0, 0]])
    assert last_real_position(check_tokens(ids, None, None, pad_id=0, max_length=9)).tolist() == [2, 0]
    assert last_real_position(check_tokens(ids, None, None, pad_id=None, max_length=9)).tolist() == [2, 2]
