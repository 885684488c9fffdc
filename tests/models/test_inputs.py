"""Input that would be read wrongly is refused; what means the same is read the same."""

import pytest
import torch

from hc_lens.models import Classifier, load_model
from hc_lens.models.inputs import Reading, check_tokens, last_text_position
from tests.models.tiny import FAMILIES, VOCAB, batch, transformers_model


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


def test_the_last_position_of_a_text_is_no_padding_and_no_pad_token() -> None:
    ids, mask = torch.tensor([[4, 5, 6], [4, 0, 0]]), torch.tensor([[1, 1, 1], [1, 1, 0]])
    padded, plain = (Reading(max_length=9, vocabulary=9, pad_id=pad) for pad in (0, None))
    assert last_text_position(check_tokens(ids, None, None, padded), 0).tolist() == [2, 0]
    assert last_text_position(check_tokens(ids, mask, None, padded), 0).tolist() == [2, 0]
    assert last_text_position(check_tokens(ids, mask, None, plain), None).tolist() == [2, 1]
    assert last_text_position(check_tokens(ids, None, None, plain), None).tolist() == [2, 2]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.tensor([5, 6]), r"input_ids must have two axes, \[batch pos\], got shape \[2\]: give one row as"),
        (torch.tensor([[[5]]]), r"got shape \[1, 1, 1\]$"),
        (torch.tensor([[5.0]]), "must be integers, got float32"),
        (torch.tensor([[True]]), "must be integers, got bool"),
        (torch.zeros(2, 0, dtype=torch.long), "at least one token"),
        (torch.tensor([[5, 6], [7, VOCAB]]), f"row 1 has token id {VOCAB} at position 1; this model has the tokens 0 to 36"),
        (torch.tensor([[5, -1]]), "row 0 has token id -1"),
        (torch.tensor([[5]], device="meta"), "meta device"),
        ([[5, 6], [7]], "token ids .* in rows of one length"),
    ],
)
def test_what_are_no_rows_of_tokens_is_named(model: Classifier, ids: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model(ids)


def test_arrays_of_numpy_and_lists_are_tokens(model: Classifier) -> None:
    tokens = batch(model.family)
    types = None if tokens.token_type_ids is None else tokens.token_type_ids.numpy()
    torch.testing.assert_close(model(tokens.input_ids.numpy(), tokens.attention_mask.numpy(), types), model(tokens))
    torch.testing.assert_close(model([[5, 6, 7]]), model(torch.tensor([[5, 6, 7]])))


def test_a_pad_token_inside_a_text_without_a_mask(model: Classifier) -> None:
    ids = torch.tensor([[5, 6, 7], [5, model.pad_id, 7]])
    if not model.reading.causal:
        with pytest.raises(ValueError, match=r"row 1 has the pad token \(id \d\) at position 1, .* pass attention_mask"):
            model(ids)
    else:
        torch.testing.assert_close(model(ids), model(ids, torch.ones_like(ids)))
