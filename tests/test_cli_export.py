"""`hc-lens export`: a subnetwork of a run as a compact model and as a transformers model, used as a newcomer would."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from hc_lens.cli import main
from hc_lens.data import encode
from hc_lens.metrics import predict
from hc_lens.models import load_compact
from hc_lens.origin import Origin
from hc_lens.pruning import open_pruned


@pytest.fixture(scope="module")
def pruned(line: Path) -> Path:
    return line / "pruned"


def test_both_formats_answer_as_the_subnetwork_does(pruned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = open_pruned(pruned)
    sub = run.subnetworks[0]
    model, task = Origin.of(run.run).load(torch.device("cpu"))
    rows = encode(next(iter(task.in_domain.values())).take(range(20)), model.tokenizer, 32)
    expected = predict(model, rows, edits=sub.edits())

    small = tmp_path / "small"
    assert main(["export", str(pruned), "--seed", "42", "--out", str(small)]) == 0
    told, place = capsys.readouterr().out.strip().splitlines()[-2:]
    assert told == f"seed 42: {len(sub.heads)} of 32 heads and {len(sub.mlps)} of 4 MLPs stay; opens with hc_lens.load_compact"
    assert place == f"in {small}"
    torch.testing.assert_close(predict(load_compact(small), rows), expected, atol=1e-4, rtol=0)

    same = tmp_path / "same-shapes"
    assert main(["export", str(pruned), "--seed", "42", "--out", str(same), "--format", "transformers"]) == 0
    assert "opens with AutoModelForSequenceClassification.from_pretrained" in capsys.readouterr().out
    theirs = AutoModelForSequenceClassification.from_pretrained(same).eval()
    batch = rows.batch(range(20))
    with torch.no_grad():
        logits = theirs(batch.input_ids, attention_mask=batch.attention_mask, token_type_ids=batch.token_type_ids).logits
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)


def test_what_cannot_be_exported_is_refused(pruned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    cases = [
        ([str(pruned), "--seed", "7", "--out", str(tmp_path / "x")], "7"),
        ([str(pruned.parent / "ft"), "--seed", "42", "--out", str(tmp_path / "x")], "not a 'prune' run"),
        ([str(pruned), "--seed", "42", "--out", str(tmp_path)], "is not a model directory"),
    ]
    for words, told in cases:
        assert main(["export", *words]) != 0
        error = capsys.readouterr().err
        assert told in error
        assert "Traceback" not in error
        assert "internal error" not in error
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
