"""The floors: who may import whom. Run before every commit."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FLOOR_0 = {"aes_hdc.errors", "aes_hdc.episode", "aes_hdc.storage", "aes_hdc.stamps"}
FLOOR_0 |= {"aes_hdc.clock", "aes_hdc.streams", "aes_hdc.trajectories"}
MODELS = {"jax", "flax", "safetensors", "tokenizers", "PIL"}

# package -> what it may import besides the standard library, NumPy and itself. The
# longest name that fits a module counts.
TABLE = {
    "aes_hdc": set(),
    "aes_hdc.clock": set(),
    "aes_hdc.errors": set(),
    "aes_hdc.episode": FLOOR_0,
    "aes_hdc.stamps": FLOOR_0,
    "aes_hdc.storage": FLOOR_0,
    "aes_hdc.streams": FLOOR_0,
    "aes_hdc.trajectories": FLOOR_0,
    "aes_hdc.envs": FLOOR_0 | {"PIL", "gymnasium"},
    # One module a suite of an extra; imported when the suite is asked for.
    "aes_hdc.envs.foreign": {*FLOOR_0, "aes_hdc.envs", "PIL", "gymnasium", "minigrid"},
    "aes_hdc.profiles": FLOOR_0,
    "aes_hdc.selection": FLOOR_0,
    "aes_hdc.curriculum": FLOOR_0,
    "aes_hdc.evaluation": FLOOR_0 | {"jinja2", "matplotlib"},
    "aes_hdc.models": {"aes_hdc.errors", *MODELS},
    "aes_hdc.policy": FLOOR_0 | {"aes_hdc.models", *MODELS},
    "aes_hdc.learner": FLOOR_0
    | {"aes_hdc.models", "aes_hdc.policy", "optax", "orbax", *MODELS},
    "aes_hdc.rollouts": FLOOR_0
    | {"aes_hdc.envs", "aes_hdc.models", "aes_hdc.policy", *MODELS},
    "configs": {"ml_collections", "aes_hdc.errors"},
    "experiments": {"aes_hdc", "absl", "gymnasium", "ml_collections", "optax", *MODELS},
    # Scripts for environments that hold a peer and nothing of ours.
    "experiments.benchmarks.peer_trl": set(),
    "experiments.benchmarks.peer_tunix": set(),
}
TABLE["experiments.benchmarks"] = TABLE["experiments"] | {"experiments", "matplotlib"}
# Extras, and what costs seconds to import: allowed inside the function that uses it.
LAZY = {
    "aes_hdc.learner": {"tensorboardX", "wandb"},
    "aes_hdc.profiles": {"anthropic"},
    "experiments": {"anthropic", "transformers", "torch", "wandb", "minigrid"},
    "experiments.benchmarks.peer_trl": {"datasets", "PIL", "torch", "transformers"}
    | {"trl"},
    "experiments.benchmarks.peer_tunix": {"flax", "jax", "optax", "transformers"}
    | {"tunix"},
}
FILES = sorted(
    path
    for top in ("aes_hdc", "configs", "experiments")
    for path in (ROOT / top).rglob("*.py")
)


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def home(module, table):
    """The longest key of `table` that is `module` or contains it."""
    fits = [name for name in table if f"{module}.".startswith(f"{name}.")]
    return max(fits, key=len)


def imports(path):
    """(line, full name, whether inside a function) of every import of a file."""
    tree = ast.parse(path.read_text())
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} has a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            yield node.lineno, name, id(node) in inside


def is_allowed(module, name, is_lazy):
    own = home(module, TABLE)
    allowed = {"numpy", own, *TABLE[own]} | (LAZY.get(own, set()) if is_lazy else set())
    if name.split(".")[0] in sys.stdlib_module_names:
        return True
    return any(f"{name}.".startswith(f"{known}.") for known in allowed)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_import_is_of_a_lower_floor(path):
    module = module_name(path)
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for line, name, is_lazy in imports(path)
        if not is_allowed(module, name, is_lazy)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("module", "name", "is_lazy", "expected"),
    [
        ("aes_hdc.envs.base", "jax", True, False),
        ("aes_hdc.envs.base", "aes_hdc.selection.aes", False, False),
        ("aes_hdc.envs.families.push", "aes_hdc.envs.draw", False, True),
        ("aes_hdc.profiles.annotator", "anthropic", False, False),
        ("aes_hdc.profiles.annotator", "anthropic", True, True),
        ("aes_hdc.models.qwen3_vl.text", "aes_hdc.episode", False, False),
        ("aes_hdc.learner.step", "aes_hdc.envs", False, False),
        ("aes_hdc.learner.step", "aes_hdc.policy.logprobs", False, True),
        ("aes_hdc.errors", "numpyro", False, False),
        ("experiments.stages", "aes_hdc.learner.step", False, True),
    ],
)
def test_the_table_means_what_it_says(module, name, is_lazy, expected):
    assert is_allowed(module, name, is_lazy) is expected
