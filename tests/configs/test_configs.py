"""Every config file loads, is plain, documents itself, and has a quick form."""

import ast
import importlib
from pathlib import Path

import pytest

from aes_hdc import stamps, storage
from aes_hdc.errors import UserError
from configs import common
from experiments import artefacts, options

ROOT = Path(__file__).parents[2]
FILES = sorted(
    path for path in (ROOT / "configs").glob("[!_]*.py") if path.name != "common.py"
)
every_config = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


@every_config
def test_it_loads_and_round_trips_through_json(path, tmp_path):
    config = options.load_config(str(path))
    plain = config.to_dict()
    storage.write_json(tmp_path / "config.json", plain)
    again = options.load_config(str(tmp_path / "config.json"))
    assert again.to_dict() == plain
    assert stamps.config_hash(again.to_dict()) == stamps.config_hash(plain)


@every_config
def test_it_has_what_its_stages_read(path):
    plain = options.load_config(str(path)).to_dict()
    stages = plain.get("stages", artefacts.STAGES)
    artefacts.make_plan(plain, Path("/nowhere"), stages)


@every_config
def test_its_docstring_has_the_command(path):
    text = ast.get_docstring(ast.parse(path.read_text()))
    assert text
    assert f"python -m experiments.main --config=configs/{path.name}" in text


@every_config
def test_its_smoke_form_loads(path):
    config = options.load_config(f"{path}:smoke").to_dict()
    assert set(config) == set(options.load_config(str(path)).to_dict())


@every_config
def test_unknown_arguments_are_refused(path):
    with pytest.raises(UserError, match="no such argument"):
        options.load_config(f"{path}:no_such_argument=1")


@every_config
def test_it_imports_nothing_but_ml_collections_and_common(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert {alias.name for alias in node.names} <= {"ml_collections"}
        if isinstance(node, ast.ImportFrom):
            assert node.module in ("ml_collections", "configs", "configs.common")


def test_arguments_are_typed_by_their_defaults():
    options = common.parse_arg(
        "model=4b,smoke,rate=3,steps=7", model="2b", smoke=False, rate=0.5, steps=1
    )
    assert vars(options) == {"model": "4b", "smoke": True, "rate": 3.0, "steps": 7}
    assert common.parse_arg("", model="2b").model == "2b"
    assert common.parse_arg("smoke=false", smoke=True).smoke is False


@pytest.mark.parametrize(
    ("arg", "said"),
    [
        ("modle=4b", "did you mean model; have model, smoke, steps"),
        ("steps=2.5", "steps='2.5': give a value of type int"),
        ("steps", "steps='true': give a value of type int"),
        ("smoke=1", "smoke='1': give a value of type bool"),
        ("steps=1,steps=2", "'steps' is given twice"),
    ],
)
def test_wrong_arguments_are_refused(arg, said):
    with pytest.raises(UserError, match=said):
        common.parse_arg(arg, model="2b", smoke=False, steps=1)


def test_modules_are_importable_too():
    for path in FILES:
        assert importlib.import_module(f"configs.{path.stem}").get_config


def test_a_value_that_is_none_of_the_known_ones_lists_them():
    with pytest.raises(UserError, match="algorithm=ppp: have grpo, ppo"):
        options.load_config("configs/quickstart.py:algorithm=ppp")
    config = options.load_config("configs/quickstart.py:algorithm=ppo").to_dict()
    assert config["learner"]["algorithm"] == "ppo"
    assert config["learner"]["loss"]["value_coef"] > 0
