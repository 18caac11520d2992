"""profiles.json: the profiles of all environments, written and strictly read."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from aes_hdc import storage
from aes_hdc.errors import UserError
from aes_hdc.profiles.aggregate import Ability, Profile

SCHEMA = 1
_NUMBER = (int, float)
# Field -> the types JSON gives it.
_PROFILE = {
    "version": int,
    "trajectories": int,
    "instances": int,
    "evidence": str,
    "success": dict,
    "abilities": dict,
    "dropped": dict,
    "transitions": list,
}
_ABILITY = {
    "count": int,
    "prevalence": _NUMBER,
    "prevalence_by_policy": dict,
    "lift": (*_NUMBER, type(None)),
    "lift_low": (*_NUMBER, type(None)),
    "status": str,
}


def to_json(profiles: Mapping[str, Profile]) -> dict[str, Any]:
    """Returns the content of profiles.json."""
    names = {name for profile in profiles.values() for name in profile.abilities}
    return {
        "schema": SCHEMA,
        "abilities": sorted(names),
        "environments": {
            env_id: asdict(profile)
            | {"transitions": [[*t] for t in profile.transitions]}
            for env_id, profile in profiles.items()
        },
    }


def from_json(data: Any) -> dict[str, Profile]:
    """Reads the content of profiles.json.

    Raises:
        UserError: if the schema is another one, a field is missing, unknown or of the
            wrong type, or a name is not on the list of abilities.
    """
    _check_fields(
        data, {"schema": int, "abilities": list, "environments": dict}, "profiles"
    )
    if data["schema"] != SCHEMA:
        raise UserError(
            f"profiles have schema {data['schema']}; this version reads {SCHEMA}: "
            "build the profiles again"
        )
    known = set(data["abilities"])
    return {
        env_id: _read_profile(entry, known, f"profile of {env_id}")
        for env_id, entry in sorted(data["environments"].items())
    }


def save(path: Path, profiles: Mapping[str, Profile]) -> None:
    """Writes profiles.json whole."""
    storage.write_json(path, to_json(profiles))


def load(path: Path) -> dict[str, Profile]:
    """Reads profiles.json; raises UserError where `from_json` would or it is absent."""
    return from_json(storage.read_json(path))


def _read_profile(entry: Any, known: set[str], where: str) -> Profile:
    """Reads one environment's entry."""
    _check_fields(entry, _PROFILE, where)
    if entry["evidence"] not in ("ok", "confounded"):
        raise UserError(f"{where}: evidence is {entry['evidence']!r}; ok or confounded")
    abilities = {}
    for name, values in entry["abilities"].items():
        _check_fields(values, _ABILITY, f"{where}, {name}")
        shares = [values["prevalence"], *values["prevalence_by_policy"].values()]
        if not all(isinstance(v, _NUMBER) and 0 <= v <= 1 for v in shares):
            raise UserError(f"{where}, {name}: prevalence {shares} must lie in 0..1")
        if values["status"] not in ("core", "soft"):
            raise UserError(
                f"{where}, {name}: status {values['status']!r}; core or soft"
            )
        abilities[name] = Ability(**values)
    transitions = []
    for edge in entry["transitions"]:
        if not isinstance(edge, list) or [type(part) for part in edge] != [
            str,
            str,
            int,
        ]:
            raise UserError(
                f"{where}: transition {edge!r}; from, to and a count are needed"
            )
        transitions.append((edge[0], edge[1], edge[2]))
    used = set(abilities) | {name for a, b, _ in transitions for name in (a, b)}
    if used - known:
        raise UserError(f"{where}: {sorted(used - known)} not in the list of abilities")
    return Profile(
        **entry | {"abilities": abilities, "transitions": tuple(transitions)}
    )


def _check_fields(entry: Any, types: Mapping[str, Any], where: str) -> None:
    """Raises UserError unless the entry has exactly these fields of these types."""
    if not isinstance(entry, dict) or set(entry) != set(types):
        have = sorted(entry) if isinstance(entry, dict) else type(entry).__name__
        raise UserError(f"{where}: has {have}; exactly {sorted(types)} are needed")
    for name, kind in types.items():
        if not isinstance(entry[name], kind) or isinstance(entry[name], bool):
            raise UserError(f"{where}: {name} is {entry[name]!r}, of the wrong type")


assert set(_PROFILE) == {field.name for field in fields(Profile)}
assert set(_ABILITY) == {field.name for field in fields(Ability)}
