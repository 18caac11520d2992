"""What the documents name is there: links, paths, modules, config keys and commands."""

import importlib
import re
import shlex
from pathlib import Path

import pytest

from aes_hdc.errors import UserError
from configs import common
from experiments import artefacts, main, options, play

ROOT = Path(__file__).parents[1]
DOCS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/*.md"))]
# What a document may call the things that the reader has.
STANDS_FOR = {"DIR", "ID", "MODEL", "NAME"}
TOPS = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
TOPS -= {"runs", "build", "dist"}

every_doc = pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)


def code_words(text):
    """The words in backticks outside of blocks; blocks are commands and drawings."""
    prose = "\n".join(line for line in text.splitlines() if not line.startswith("    "))
    return sorted(set(re.findall(r"`([^`\s]+)`", prose)))


def commands(text):
    """The lines of blocks that are commands, with continued ones joined."""
    joined = re.sub(r"\\\n\s*", "", text)
    lines = re.findall(r"^ {4,}((?:python|bash|pytest) .*)$", joined, re.MULTILINE)
    inline = re.findall(r"`((?:python|bash|pytest) [^`]*)`", joined)
    return [shlex.split(line, comments=True) for line in (*lines, *inline)]


COMMANDS = [
    pytest.param(words, id=f"{path.name}-{number}")
    for path in DOCS
    for number, words in enumerate(commands(path.read_text()))
]


def test_documents_have_commands():
    assert len(COMMANDS) > 10


@every_doc
def test_every_relative_link_leads_somewhere(path):
    text = path.read_text()
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'src="([^"]+)"', text)
    wrong = [
        link
        for link in links
        if not re.match(r"https?://|#", link)
        and not (path.parent / link.partition("#")[0]).exists()
    ]
    assert wrong == []


@every_doc
def test_every_path_is_there(path):
    wrong = []
    for word in code_words(path.read_text()):
        top = word.split("/")[0]
        if "::" in word:  # A test, looked up by itself.
            continue
        if top in TOPS or word.endswith((".py", ".md", ".sh", ".toml", ".cff")):
            wrong += [] if (ROOT / word).exists() else [word]
    assert wrong == []


@every_doc
def test_every_module_is_there(path):
    wrong = []
    for word in code_words(path.read_text()):
        if re.fullmatch(r"(aes_hdc|experiments|configs)(\.\w+)+", word):
            module, _, name = word.rpartition(".")
            try:
                importlib.import_module(word)
            except ModuleNotFoundError:
                found = hasattr(importlib.import_module(module), name)
                wrong += [] if found else [word]
    assert wrong == []


@every_doc
def test_every_config_key_is_there(path):
    config = common.tiny_model_config()
    for word in code_words(path.read_text()):
        section, _, key = word.partition(".")
        is_file = word.endswith((".json", ".jsonl", ".safetensors"))
        if section in config and not is_file and re.fullmatch(r"\w+(\.\w+)*", key):
            value = config
            for part in word.split("."):
                assert part in value, word
                value = value[part]


@every_doc
def test_every_flag_is_there(path):
    known = {
        f"--{name}" for name in ("config", "workdir", "stages", "restart", "trace")
    }
    known |= set(re.findall(r"--\w+", play.make_parser().format_help()))
    for word in code_words(path.read_text()):
        flag = word.partition("=")[0]
        if flag.startswith("--") and not flag.startswith("--config."):
            assert flag in known, word


def stand_ins(word, tmp_path):
    """Fills in what the reader would."""
    for name in STANDS_FOR:
        word = re.sub(rf"\b{name}\b", str(tmp_path / name.lower()), word)
    return word


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_is_right(words, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    if words[0] in ("bash", "pytest"):
        assert Path(words[1]).exists()
        return
    assert words[1] == "-m"
    module, flags = words[2], [stand_ins(word, tmp_path) for word in words[3:]]
    source = ROOT / f"{module.replace('.', '/')}.py"
    assert source.exists()
    if module == "experiments.play":
        values = play.make_parser().parse_args(flags)
        play.check_task(play.find_spec(values.env), values)
    elif module == "experiments.main":
        check_main(flags, tmp_path)
    else:
        for flag in flags:
            assert f'"{flag.partition("=")[0]}"' in source.read_text()


def check_main(flags, tmp_path):
    """Reads a command line as the program does, up to where it would start."""
    made = tmp_path / "dir"
    made.mkdir()
    config = common.tiny_model_config()
    (made / "config.json").write_text(config.to_json())
    overrides = [flag for flag in flags if flag.startswith("--config.")]
    values = main._parse([flag for flag in flags if flag not in overrides])
    config = options.load_config(values.config)
    options.apply_overrides(config, overrides)
    stages = main._stage_names(values.stages, config)
    assert stages
    artefacts.make_plan(config.to_dict(), made, stages, values.restart or None)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("--config=configs/quickstart.py --config.learner.lr=1", "no such key"),
        ("--config=configs/quikstart.py", "no such file"),
        ("--config=configs/quickstart.py:smok", "did you mean smoke"),
        ("--config=configs/quickstart.py --stages=trian", "did you mean train"),
        ("--config=configs/quickstart.py --restrat=train", "did you mean --restart"),
    ],
)
def test_a_wrong_command_would_be_found(command, said, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    with pytest.raises(UserError, match=said):
        check_main([*command.split(), f"--workdir={tmp_path}"], tmp_path)


def test_commands_are_found_in_blocks_and_prose():
    text = "see `pytest tests -k NAME`\n\n"
    text += "    python -m a \\\n      --b=1  # why\n    a = 1\n"
    words = [["python", "-m", "a", "--b=1"], ["pytest", "tests", "-k", "NAME"]]
    assert commands(text) == words


def test_readme_has_the_two_commands_and_ci_runs_the_second():
    readme = (ROOT / "README.md").read_text()
    first, second = re.findall(r"^    bash (\S+)", readme, re.MULTILINE)[:2]
    assert (first, second) == ("launch/quickstart.sh", "launch/test.sh")
    assert f"/{second}" in (ROOT / ".ci" / "run").read_text()
    assert "configs/quickstart.py" in (ROOT / first).read_text()


def test_readme_names_every_config_and_stage():
    readme = (ROOT / "README.md").read_text()
    for path in ROOT.glob("configs/[!_]*.py"):
        assert path.stem == "common" or f"`configs/{path.name}`" in readme, path.name
    for stage in artefacts.STAGES:
        assert f"**{stage}** " in readme


def test_changelog_has_the_version():
    import aes_hdc

    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert f"\n## {aes_hdc.__version__}" in changelog
    assert "\n## [Unreleased]\n" in changelog
    assert "\n### Results\n" in changelog


def test_every_test_that_a_document_names_is_there():
    named = {
        tuple(word.split("::"))
        for path in DOCS
        for word in code_words(path.read_text())
        if "::" in word
    }
    assert len(named) > 40
    missing = [
        f"{file}::{name}"
        for file, name in sorted(named)
        if not (ROOT / "tests" / file).is_file()
        or f"def {name}(" not in (ROOT / "tests" / file).read_text()
    ]
    assert missing == []
