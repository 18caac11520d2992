"""Laws of the whole suite: vocabulary, splits, events, catalogue."""

import json
import tomllib
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import aes_hdc
from aes_hdc import envs
from aes_hdc.envs import catalog
from aes_hdc.envs.events import KINDS

ROOT = Path(aes_hdc.__file__).parents[1]


@pytest.fixture(scope="module")
def vocabulary():
    text = (ROOT / "aes_hdc" / "abilities.toml").read_text()
    groups = tomllib.loads(text)
    names = [name for group in groups.values() for name in group]
    assert len(names) == len(set(names)) == 89
    return set(names)


def test_abilities_come_from_the_vocabulary(env_id, vocabulary):
    spec = envs.make(env_id).spec
    assert 2 <= len(spec.abilities) == len(set(spec.abilities)) <= 5
    assert set(spec.abilities) <= vocabulary


def test_no_event_is_named_after_an_ability(vocabulary):
    assert not set(KINDS) & vocabulary


def test_clusters_are_on_one_side_of_the_split():
    clusters = {}
    for spec in envs.all_specs():
        if spec.cluster:
            clusters.setdefault(spec.cluster, set()).add(spec.split)
    assert all(len(splits) == 1 for splits in clusters.values())


def test_specs_are_sorted_and_unique():
    ids = [spec.id for spec in envs.all_specs()]
    assert ids == sorted(set(ids))


def test_environments_look_different():
    """Two environments never share a coarse picture, close relatives excepted."""
    prints = {}
    for spec in envs.all_specs():
        env = envs.make(spec.id)
        frames = [env.render(env.reset(seed, 1), 96) for seed in range(8)]
        small = np.stack(frames).reshape(8, 8, 12, 8, 12, 3).mean(axis=(2, 4))
        prints[spec.id] = small.reshape(8, -1)
    for one, two in combinations(envs.all_specs(), 2):
        if one.cluster and one.cluster == two.cluster:
            continue
        gap = np.abs(prints[one.id][:, None] - prints[two.id][None]).mean(axis=2)
        assert gap.min() > 3, (one.id, two.id)  # Of 255; equal boards give 0.


def test_golden_file_is_current():
    """A change here needs a new version; then run `python -m aes_hdc.envs.catalog`."""
    assert json.loads((ROOT / catalog.GOLDEN).read_text()) == catalog.golden()


def test_catalogue_is_current():
    assert (ROOT / "docs" / "CATALOG.md").read_text() == catalog.table()
    pictures = {path.stem for path in (ROOT / "docs" / "catalog").glob("*.png")}
    assert pictures == {spec.id for spec in envs.all_specs()}


def test_catalogue_is_written_below_a_repository_only(tmp_path):
    with pytest.raises(aes_hdc.errors.UserError, match="tests/envs"):
        catalog.write(tmp_path)
    (tmp_path / "tests" / "envs").mkdir(parents=True)
    catalog.write(tmp_path)
    assert json.loads((tmp_path / catalog.GOLDEN).read_text()) == catalog.golden()
