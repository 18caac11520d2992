"""Reads and checks the command line's config, in full, before anything heavy starts."""

import ast
import difflib
import importlib.util
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from aes_hdc import storage
from aes_hdc.errors import UserError


def load_config(text: str) -> ConfigDict:
    """Loads `FILE.py[:arg]` or the `config.json` of a run folder.

    Raises:
        UserError: if there is no such file or it makes no config.
    """
    path = Path(text)
    if path.suffix == ".json":
        return _locked(_from_plain(storage.read_json(path)), text)
    name, _, arg = text.partition(".py:")
    path = Path(name + ".py" if ".py:" in text else text)
    if not path.is_file():
        near = sorted(
            p.name for p in path.parent.glob("[!_]*.py") if p.stem != "common"
        )
        hint = f"{path.parent} has {', '.join(near)}" if near else "give FILE.py[:arg]"
        raise UserError(f"--config={text}: no such file; {hint}")
    spec = importlib.util.spec_from_file_location("experiment_config", path)
    if spec is None or spec.loader is None:
        raise UserError(f"--config={text}: no Python file; give FILE.py[:arg]")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        config = module.get_config(arg)
    except UserError:
        raise
    except Exception as error:  # Whatever a config file does wrong is the user's.
        raise UserError(
            f"--config={text}: the file fails with {type(error).__name__}: {error}"
        ) from error
    return _locked(config, text)


def _locked(config: Any, text: str) -> ConfigDict:
    if not isinstance(config, ConfigDict):
        raise UserError(f"--config={text}: it holds no config; see configs/*.py")
    return config.lock()


def _from_plain(value: Any) -> Any:
    """Undoes JSON: objects become ConfigDicts, arrays tuples."""
    if isinstance(value, dict):
        return ConfigDict({name: _from_plain(inner) for name, inner in value.items()})
    return tuple(map(_from_plain, value)) if isinstance(value, list) else value


def leaves(config: ConfigDict, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields (dotted key, value) for every value that is no section."""
    for name in sorted(config):
        value = config[name]
        if isinstance(value, ConfigDict):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def apply_overrides(config: ConfigDict, overrides: Sequence[str]) -> None:
    """Sets values in `config` from arguments of the form `--config.key=value`.

    Raises:
        UserError: at the first argument that names no value or gives a wrong one.
    """
    given = set()
    for argument in overrides:
        key, equals, text = argument.lstrip("-").partition("=")
        key = key.partition(".")[2]
        check_key(config, key)
        if not equals:
            raise UserError(f"--config.{key}: no value; write --config.{key}=VALUE")
        if key in given:
            raise UserError(f"--config.{key} is given twice; give it once")
        given.add(key)
        _set(config, key, text)
    for key, value in leaves(config):
        _check_finite(key, value)


def check_key(config: ConfigDict, key: str) -> None:
    """Raises UserError at the first part of the dotted `key` that is not there."""
    section: Any = config
    path = key.split(".")
    for depth, name in enumerate(path):
        where = ".".join(path[:depth]) or "the config"
        if not isinstance(section, ConfigDict):
            raise UserError(f"--config.{key}: no such key; {where} is a plain value")
        if name not in section:
            have = ", ".join(sorted(section))
            raise UserError(
                f"--config.{key}: no such key; did you mean {_nearest(config, key)};"
                f" {where} has {have}"
            )
        section = section[name]
    if isinstance(section, ConfigDict):
        have = ", ".join(sorted(section))
        raise UserError(f"--config.{key}: a section; set one of its keys: {have}")


def _nearest(config: ConfigDict, key: str) -> str:
    """The dotted key most like `key`: by its last word, its initials, its place."""
    wanted = key.split(".")[-1]

    def likeness(other: str) -> float:
        last = other.split(".")[-1]
        initials = "".join(word[:1] for word in last.split("_"))
        score = difflib.SequenceMatcher(None, wanted, last).ratio()
        score += 0.5 * (wanted == initials)
        return score + 0.1 * difflib.SequenceMatcher(None, key, other).ratio()

    return max((name for name, _ in leaves(config)), key=likeness, default="nothing")


def _set(config: ConfigDict, key: str, text: str) -> None:
    """Reads `text` as the type that the key has and stores it."""
    *path, name = key.split(".")
    section = config
    for part in path:
        section = section[part]
    kind = section.get_type(name)
    if kind is tuple:
        section[name] = _read_tuple(key, text, section[name])
        return
    values = flags.FlagValues()
    argument = f"--config.{key}={text}"
    try:
        config_flags.DEFINE_config_dict(
            "config", config, flag_values=values, sys_argv=["", argument]
        )
        values(["", argument])
    except (flags.Error, TypeError, ValueError):
        raise UserError(
            f"--config.{key}={text!r}: give a value of type {kind.__name__}, such as"
            f" {section[name]!r}"
        ) from None


def _read_tuple(key: str, text: str, old: tuple[Any, ...]) -> tuple[Any, ...]:
    """Reads a tuple literal; bare commas would silently make one long text."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        value = None
    if not isinstance(value, tuple | list) or text.strip()[:1] not in ("(", "["):
        parts = [part.strip(" ()[]'\"") for part in text.split(",")]
        is_text = not old or isinstance(old[0], str)
        shown = ", ".join(repr(part) if is_text else part for part in parts)
        comma = "," if len(parts) == 1 else ""
        raise UserError(
            f"--config.{key}={text!r}: give a tuple in parentheses:"
            f' --config.{key}="({shown}{comma})"'
        )
    kinds = {type(element) for element in old}
    for element in value:
        if kinds and type(element) not in kinds:
            names = " or ".join(sorted(kind.__name__ for kind in kinds))
            raise UserError(
                f"--config.{key}={text!r}: element {element!r} is no {names}; the"
                f" default is {old!r}"
            )
    return _tuples(value)


def _tuples(value: Any) -> Any:
    """Nested lists as nested tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


def _check_finite(key: str, value: Any) -> None:
    """Raises UserError for NaN or infinity, also inside tuples."""
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"--config.{key}={value!r}: give a finite number")
    if isinstance(value, tuple | list):
        for element in value:
            _check_finite(key, element)
