"""Data is never code: no reader that could run it, no path that leads elsewhere."""

import ast
import io
import pickle
import re
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import numpy as np
import pytest

from aes_hdc import storage
from aes_hdc.errors import UserError
from experiments import options

ROOT = Path(__file__).parents[1]
SOURCES = sorted(
    path
    for path in ROOT.rglob("*.py")
    if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
    and path.relative_to(ROOT).parts[0] not in ("build", "dist", "runs")
)
# These make pickles themselves: a hostile one that no reader may open, and states of
# environments, which must survive the way to a worker.
MAKERS = {
    "tests/test_security.py",
    "tests/envs/test_adapters.py",
    "tests/envs/test_minigrid.py",
    "tests/envs/test_oracle.py",
    "tests/envs/test_states.py",
}
MODULES = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "yaml"}
BUILTINS = {"eval", "exec", "compile", "__import__"}
ATTRIBUTES = {
    ("torch", "load"),
    ("yaml", "load"),
    ("yaml", "unsafe_load"),
    ("os", "system"),
    ("os", "popen"),
    ("pd", "read_pickle"),
}


def violations(tree):
    """(line, what) of every way in which a file could run data."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else names
            for name in names:
                if name.split(".")[0] in MODULES:
                    yield node.lineno, f"import of {name}"
        elif isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Name) and function.id in BUILTINS:
                yield node.lineno, f"{function.id}()"
            if isinstance(function, ast.Attribute):
                owner = getattr(function.value, "id", "")
                if (owner, function.attr) in ATTRIBUTES:
                    yield node.lineno, f"{owner}.{function.attr}()"
            for keyword in node.keywords:
                is_false = getattr(keyword.value, "value", None) is False
                if keyword.arg == "allow_pickle" and not is_false:
                    yield node.lineno, "allow_pickle"
                is_true = getattr(keyword.value, "value", None) is True
                if keyword.arg in ("shell", "trust_remote_code") and is_true:
                    yield node.lineno, keyword.arg


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_file_can_run_data(path):
    name = path.relative_to(ROOT).as_posix()
    found = [] if name in MAKERS else list(violations(ast.parse(path.read_text())))
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from yaml import load",
        "import cloudpickle as c",
        "eval('1')",
        "exec(text)",
        "__import__(name)",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=flag)",
        "torch.load(path)",
        "yaml.load(text)",
        "os.system(text)",
        "subprocess.run(text, shell=True)",
    ],
)
def test_the_scan_finds_what_it_is_for(line):
    assert list(violations(ast.parse(line)))


@pytest.mark.parametrize(
    "line",
    ["ast.literal_eval(text)", "np.load(p, allow_pickle=False)", "re.compile(x)"],
)
def test_the_scan_leaves_harmless_calls_alone(line):
    assert list(violations(ast.parse(line))) == []


class Canary:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (Path(self.path),))


def test_hostile_payloads_do_not_sing(tmp_path):
    canary = tmp_path / "canary"
    pickled = pickle.dumps(Canary(canary))
    objects = io.BytesIO()
    np.save(objects, np.array([Canary(canary)], dtype=object), allow_pickle=True)
    with zipfile.ZipFile(tmp_path / "objects.npz", "w") as archive:
        archive.writestr("a.npy", objects.getvalue())
    (tmp_path / "plain.npz").write_bytes(pickled)
    (tmp_path / "bare.npz").write_bytes(objects.getvalue())
    for name in ("objects.npz", "plain.npz", "bare.npz"):
        with pytest.raises(UserError, match=name):
            storage.read_npz(tmp_path / name)
    (tmp_path / "x.json").write_bytes(pickled)
    with pytest.raises(UserError, match=r"x\.json"):
        storage.read_json(tmp_path / "x.json")
    text = f"!!python/object/apply:pathlib.Path.touch ['{canary}']"
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError, match=r"config\.json"):
        options.load_config(str(tmp_path / "config.json"))
    assert not canary.exists()
    # The canary does sing where somebody lets it.
    pickle.loads(pickled)
    assert canary.exists()


def test_every_module_imports_with_the_core_dependencies_alone():
    code = """
        import importlib, pkgutil, sys

        EXTRAS = {"torch", "transformers", "tensorflow", "tensorflow_datasets", "wandb",
                  "anthropic", "minigrid", "pygame", "grain", "array_record", "chex",
                  "hypothesis", "pytest", "psutil", "tensorboardX", "requests"}

        class Block:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] in EXTRAS:
                    raise ModuleNotFoundError(f"blocked: {name}", name=name)

        sys.meta_path.insert(0, Block())
        import aes_hdc
        for module in pkgutil.walk_packages(aes_hdc.__path__, "aes_hdc."):
            # A module of a foreign suite is that suite's, and imported with it only.
            if module.name.startswith("aes_hdc.envs.foreign."):
                continue
            importlib.import_module(module.name)
        print("ok", sorted(EXTRAS & set(sys.modules)))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "ok []\n", done.stderr


def test_importing_environments_starts_no_accelerator():
    code = """
        import sys
        from aes_hdc import envs, profiles, selection, curriculum, evaluation
        envs.all_specs()
        print(sorted({"jax", "flax", "optax", "matplotlib.pyplot"} & set(sys.modules)))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "[]\n", done.stderr


def tracked_texts():
    """Every text file of the repository that is not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    names = [name for name in listed.stdout.split("\0") if name]
    for path in sorted(ROOT / name for name in names) or SOURCES:
        if path.is_file() and path.stat().st_size < 1_000_000:
            try:
                yield path, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def test_nothing_depends_on_a_place_outside_the_repository():
    # Written in two parts, so that this file is not found itself.
    places = re.compile("/" + r"work/|\.\./" + "shared|/" + "root/|/" + r"home/\w")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path, text in tracked_texts()
        for number, line in enumerate(text.splitlines(), 1)
        if places.search(line)
    ]
    assert found == []


def test_code_is_ascii():
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in SOURCES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if not line.isascii()
    ]
    assert found == []
