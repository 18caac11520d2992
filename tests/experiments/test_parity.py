from pathlib import Path

import pytest

from experiments import parity

GOLDEN = Path(__file__).parent.parent / "models" / "golden"


def run(*args):
    return parity.main([f"--folder={GOLDEN / 'ckpt_a'}", f"--golden={GOLDEN}", *args])


def test_the_table_ends_in_a_verdict(monkeypatch, capsys):
    rows = [parity.Row("case", "logits", 9e-5, 1e-4)]
    monkeypatch.setattr(parity, "compare", lambda *_: iter(rows))
    assert run() == 0
    header, line, verdict = capsys.readouterr().out.splitlines()
    assert header.split() == ["case", "quantity", "error", "tolerance"]
    assert line.split() == ["case", "logits", "9.0e-05", "1e-04"]
    assert verdict == "all within tolerance"


@pytest.mark.parametrize("error", [2e-4, float("nan")])
def test_a_quantity_over_its_tolerance_fails(monkeypatch, capsys, error):
    rows = [parity.Row("case", "logits", error, 1e-4)]
    monkeypatch.setattr(parity, "compare", lambda *_: iter(rows))
    assert run() == 1
    assert "1 over tolerance" in capsys.readouterr().out


def test_absent_goldens_are_one_line(capsys):
    assert run("--prefix=case_z") == 1
    assert "no file case_z*.npz" in capsys.readouterr().err
