import pytest

from experiments import parity

QUANTITIES = (
    "position_ids",
    "rope_deltas",
    "vision_patch_embed",
    "vision_last_hidden",
    "vision_embeds",
    "deepstack_features",
    "text_layer_inputs",
    "final_norm",
    "logits",
    "token_logprobs",
    "grad_norms",
    "grad/",
    "gen_tokens",
    "gen_logits",
)


@pytest.fixture(scope="module", params=["a", "b"])
def rows(request, golden):
    """All comparisons of one checkpoint, its cases padded to one shape."""
    variant = request.param
    folder = golden / f"ckpt_{variant}"
    return [*parity.compare(folder, golden, f"case_{variant}_")]


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_it_equals_the_reference(rows, quantity):
    compared = [row for row in rows if row.quantity.startswith(quantity)]
    assert compared
    assert [row for row in compared if not row.passed] == []


def test_every_quantity_has_a_test(rows):
    assert all(row.quantity.startswith(QUANTITIES) for row in rows)
