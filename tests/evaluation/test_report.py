"""The page is whole, says what is missing, and is inert whatever the files hold."""

import html.parser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from aes_hdc import storage
from aes_hdc.errors import UserError
from aes_hdc.evaluation import report

SECTIONS = [
    "result", "selection", "profiles", "training", "curriculum", "success", "episodes",
    "run",
]  # fmt: skip


class Page(html.parser.HTMLParser):
    """Counts what matters: tags, ids, sources, scripts and visible text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.sources, self.scripts = [], [], [], []
        self.handlers, self.text, self.inside = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.tags.append(tag)
        self.inside.append(tag)
        self.ids += [given["id"]] if "id" in given else []
        self.sources += [given[key] for key in ("src", "href") if key in given]
        self.handlers += [key for key in given if key.startswith("on")]

    def handle_endtag(self, tag):
        while self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, data):
        if self.inside and self.inside[-1] == "script":
            self.scripts.append(data)
        elif not self.inside or self.inside[-1] != "style":
            self.text.append(data)


def test_a_finished_run_has_every_section_and_figure(run_folder):
    path = report.write_report(run_folder)
    assert path == run_folder / "report.html"
    page = Page(path.read_text())
    assert [name for name in SECTIONS if name not in page.ids] == []
    text = " ".join(" ".join(page.text).split())
    assert "Not here" not in text
    assert "0.25 \N{RIGHTWARDS ARROW} 0.61" in text
    assert "+36 points [+31, +41], +144% relative" in text
    # The relative gain of the other panel is null: it is not printed as a number.
    assert "+2 points [-2, +6]; random play 0.10 Env" in text
    assert "4 of 9" in text
    assert "Not measured: nim_heaps" in text
    assert "confounded" in text
    assert "Finished: lights_out" in text
    # Coverage, two heat maps, two sets of curves, the timeline; four frames.
    assert sum("svg+xml" in source for source in page.sources) == 6
    assert sum("image/png" in source for source in page.sources) == 4


def test_the_page_needs_nothing_from_outside(run_folder):
    text = report.render(run_folder)
    page = Page(text)
    assert all(source.startswith(("data:", "#")) for source in page.sources)
    assert not {"link", "iframe", "object", "embed"} & set(page.tags)
    assert "@import" not in text
    assert "url(" not in text


def test_the_same_files_give_the_same_page(run_folder):
    assert report.render(run_folder) == report.render(run_folder)


@pytest.mark.parametrize(
    ("stage", "said"),
    [
        ("profile", "profiles.json"),
        ("gradients", "gradients.json"),
        ("select", "selection.json"),
        ("train", "metrics.jsonl"),
        ("evaluate", "evaluation.json"),
    ],
)
def test_a_stage_that_has_not_run_is_named(run_folder, stage, said):
    shutil.rmtree(run_folder / stage)
    text = " ".join(" ".join(Page(report.render(run_folder)).text).split())
    assert f"Not here: the stage {stage} has left no {said}" in text
    report.write_summary(run_folder)


def test_an_empty_run_folder_makes_a_page_too(tmp_path):
    text = " ".join(Page(report.render(tmp_path)).text)
    assert text.count("Not here") >= len(SECTIONS)
    summary = storage.read_json(report.write_summary(tmp_path))
    assert summary["id"] is None
    assert summary["selected"] is None


HOSTILE = """<script>alert(1)</script></pre></details><script>alert(1)</script>
"><img src=x onerror=alert(1)><svg/onload=alert(1)>{{ 7 * 7 }}{% include 'x' %}</script>
javascript:alert(1)' onmouseover='alert(1)<!-- ]]>$x_1$ &lt;b&gt;\u202e\x00\ud83d"""


def poison(value, is_names=False):
    """Puts hostile text into every string of plain data, and keys that are names."""
    if isinstance(value, dict):
        return {
            key + HOSTILE * is_names: inner
            if key == "frame"  # A path; hostile ones are a test of their own.
            else poison(inner, key in ("settings", "abilities", "environments"))
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [poison(inner) for inner in value]
    return value + HOSTILE if isinstance(value, str) else value


def test_hostile_text_in_every_file_stays_text(run_folder):
    clean = Page(report.render(run_folder))
    for path in run_folder.rglob("*.json"):
        storage.write_json(path, poison(storage.read_json(path)))
    for path in run_folder.rglob("*.jsonl"):
        lines = [storage.to_json(poison(line)) for line in storage.read_jsonl(path)]
        storage.write_text(path, "".join(line + "\n" for line in lines))
    text = report.write_report(run_folder).read_text()
    page = Page(text)
    assert page.scripts == clean.scripts
    assert len(page.scripts) == 1
    assert page.handlers == []
    assert all(source.startswith(("data:", "#")) for source in page.sources)
    # No element that the template does not write.
    assert set(page.tags) <= set(clean.tags)
    # It is shown, not dropped; and the template engine did not run it.
    assert "<script>alert(1)</script></pre>" in "".join(page.text)
    assert "{{ 7 * 7 }}" in text


@pytest.mark.parametrize(
    "name", ["../../../secret.png", "/etc/hostname", "..", "x/y.png"]
)
def test_a_frame_from_elsewhere_is_refused(run_folder, name):
    path = next((run_folder / "train" / "episodes").rglob("*.json"))
    episode = storage.read_json(path)
    episode["turns"][0]["frame"] = name
    storage.write_json(path, episode)
    with pytest.raises(UserError, match="name"):
        report.render(run_folder)


def test_a_frame_that_is_no_picture_is_refused(run_folder):
    path = next((run_folder / "train" / "episodes").rglob("*-00.png"))
    path.write_text("<svg onload='alert(1)'/>")
    with pytest.raises(UserError, match="no PNG file"):
        report.render(run_folder)


def test_the_summary_counts_what_the_logs_hold(run_folder):
    summary = storage.read_json(report.write_summary(run_folder))
    assert summary["pool_size"] == 9
    assert summary["selected"][:2] == ["lights_out", "frozen_lake"]
    assert (summary["core_abilities"], summary["core_covered"]) == (8, 8)
    assert summary["updates"] == 60
    # 60 updates of 4 environments in 3 conditions of 16 episodes.
    assert summary["episodes"] == 60 * 4 * 3 * 16
    assert summary["tokens"] == 60 * 2000
    assert summary["ood"]["relative_gain"] is None
    assert summary["seconds"]["collect"] == 3.5 / 4
    assert summary["config_hash"] == "c0ffee"


def test_many_episodes_are_thinned_evenly_with_first_and_last():
    paths = [Path(str(i)) for i in range(101)]
    kept = [int(str(path)) for path in report._spread(paths, 24)]
    assert (kept[0], kept[-1], len(kept)) == (0, 100, 24)
    assert set(np.diff(kept)) <= {4, 5}


def test_the_report_needs_no_jax(run_folder):
    code = (
        "import sys, pathlib; from aes_hdc.evaluation.report import write_report;"
        f"write_report(pathlib.Path({str(run_folder)!r}));"
        "print({'jax', 'flax', 'torch', 'matplotlib.pyplot'} & set(sys.modules))"
    )
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr


def test_every_metrics_line_of_the_fixture_has_what_each_line_must(run_folder):
    lines = storage.read_jsonl(run_folder / "train" / "metrics.jsonl")
    assert all({"step", "wall", "config_hash", "git"} <= set(line) for line in lines)
    text = (run_folder / "train" / "metrics.jsonl").read_text()
    assert not re.search(r"NaN|Infinity", text)
