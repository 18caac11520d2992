"""The planner counts loops as often as they run, by hand and by a compiled text."""

import jax
import jax.numpy as jnp
import pytest

from aes_hdc.errors import UserError
from aes_hdc.models.sharding import make_mesh
from experiments import options, plan
from experiments.planner import compiler, programs, roofline

# A loop of three runs around a loop of unknown length, each with a collective.
HLO = """HloModule jit_f

%inner_body (p: f32[4]) -> f32[4] {
  %p = f32[4] parameter(0)
  ROOT %g = bf16[8,2]{1,0} all-gather(%p), dimensions={0}
}

%outer_body (q: f32[4]) -> f32[4] {
  %w = f32[4] while(%q), condition=%cond, body=%inner_body
  ROOT %r = (f32[4], f32[16]) all-reduce-start(%w), to_apply=%add
}

ENTRY %main (a: f32[4]) -> f32[4] {
  %a = f32[4] parameter(0)
  %x = f32[4] while(%a), body=%outer_body, backend_config={"known_trip_count":{"n":"3"}}
  ROOT %s = f32[4] all-reduce(%x), to_apply=%add
}
"""


def test_collectives_count_as_often_as_their_loops_run():
    found = compiler.read_traffic(HLO, steps=5)
    gather, reduce = found["all-gather"], found["all-reduce"]
    assert (gather.written, gather.runs, gather.bytes) == (1, 15, 15 * 32)
    assert (reduce.written, reduce.runs, reduce.bytes) == (2, 4, 3 * 64 + 16)


def test_products_count_as_often_as_their_scans_run():
    def program(w, x):
        return jax.lax.scan(lambda h, _: (h @ w, None), x, None, length=7)[0]

    traced = jax.jit(program).trace(jnp.zeros((5, 5)), jnp.zeros((3, 5)))
    ((equation, times),) = roofline._products(traced.jaxpr.jaxpr, 1)
    assert times == 7
    assert roofline._flops(equation) == 2 * 3 * 5 * 5


@pytest.mark.slow
@pytest.mark.multidevice
def test_every_program_of_a_config_is_traced_and_estimated():
    config = options.load_config("configs/quickstart.py:smoke").to_dict()
    found = programs.make_plan(config, make_mesh(4, 1, 1))
    params = programs.bytes_per_chip(found.resident["parameters"])
    assert programs.bytes_per_chip(found.resident["gradients"]) == params
    names = []
    for program, traced in programs.abstract_calls(found):
        line = roofline.estimate(found, program, traced, roofline.CHIPS["v5e"])
        assert max(line.times.values()) > 0
        assert 0 <= line.utilisation <= 1
        names.append(program.name.split()[0])
    assert {*names} == {
        "prefill", "decode", "gradient", "accumulate", "update", "sketch",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config=a.py"], "--topology=... is missing"),
        (["--config=a.py", "--config=b.py"], "second one"),
        (["--config=a.py", "--topo=v5e:4x4"], "no such flag"),
    ],
)
def test_wrong_flags_are_one_line(arguments, message):
    with pytest.raises(UserError, match=message):
        plan._split(arguments)
