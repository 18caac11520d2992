"""Whole or absent: every file that storage writes, cut and damaged in every way."""

import json
import math
import multiprocessing
import os
import resource
import string

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aes_hdc import stamps, storage
from aes_hdc.errors import UserError

RECORDS = [{"step": 1, "text": "\u00fc\u2028<b>"}, {"step": 2, "x": -0.5}, {"step": 30}]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def write_records(path):
    with storage.JsonLog(path) as log:
        for record in RECORDS:
            log.append(record)
    return path.read_bytes()


def test_a_log_cut_at_every_byte_of_its_last_two_records_keeps_the_complete_ones(
    tmp_path,
):
    path = tmp_path / "metrics.jsonl"
    bad = tmp_path / "metrics.jsonl.bad"
    whole = write_records(path)
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(ends[0], len(whole) + 1):
        bad.unlink(missing_ok=True)
        path.write_bytes(whole[:cut])
        # A record without its line break is complete; anything shorter is torn.
        complete = sum(cut >= end - 1 for end in ends)
        assert storage.read_jsonl(path) == RECORDS[:complete]
        with storage.JsonLog(path) as log:
            log.append({"step": 99})
        assert storage.read_jsonl(path) == [*RECORDS[:complete], {"step": 99}]
        start = max(end for end in [0, *ends] if end <= cut)
        torn = whole[start:cut] if cut not in (start, *(e - 1 for e in ends)) else b""
        assert (bad.read_bytes() if bad.exists() else b"") == (torn and torn + b"\n")


@settings(max_examples=40, deadline=None)  # Each record waits for the disk.
@given(st.lists(st.dictionaries(st.text(), JSON), max_size=4), st.data())
def test_a_log_cut_anywhere_keeps_a_prefix_and_takes_the_next_record(
    tmp_path_factory, records, data
):
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    with storage.JsonLog(path) as log:
        for record in records:
            log.append(record)
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    kept = storage.read_jsonl(path)
    assert kept == records[: len(kept)]
    with storage.JsonLog(path) as log:
        log.append({"next": 1})
    assert storage.read_jsonl(path) == [*kept, {"next": 1}]


def append_many(path, writer, count):
    with storage.JsonLog(path) as log:
        for number in range(count):
            log.append({"writer": writer, "number": number, "pad": "x" * 200})


def test_four_processes_append_side_by_side_without_mixing_records(tmp_path):
    path = tmp_path / "cache.jsonl"
    context = multiprocessing.get_context("fork")
    workers = [
        context.Process(target=append_many, args=(path, writer, 100))
        for writer in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    seen = [(r["writer"], r["number"]) for r in storage.read_jsonl(path)]
    assert sorted(seen) == [(w, n) for w in range(4) for n in range(100)]
    # Each writer's own records keep their order.
    assert [n for w, n in seen if w == 2] == list(range(100))


def test_a_damaged_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"a": 1}\n{"a": \n{"a": 3}\n')
    with pytest.raises(UserError, match=r"log\.jsonl:2: no valid record"):
        storage.read_jsonl(path)


@pytest.mark.parametrize("bad", [math.nan, math.inf, np.float32(np.nan)])
def test_nan_and_infinity_are_never_written(tmp_path, bad):
    path = tmp_path / "log.jsonl"
    write_records(path)
    with storage.JsonLog(path) as log, pytest.raises(ValueError, match="JSON"):
        log.append({"loss": bad})
    assert storage.read_jsonl(path) == RECORDS
    with pytest.raises(ValueError, match="JSON"):
        storage.write_json(tmp_path / "x.json", [bad])
    assert not (tmp_path / "x.json").exists()


@pytest.mark.parametrize(
    "text", ["NaN", "[Infinity]", "{'a': 1}", "", "[" * 100_000, "\xff", "{} {}"]
)
def test_what_is_no_strict_json_is_refused_with_the_path(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match=r"x\.json: no valid JSON"):
        storage.read_json(path)


@settings(max_examples=40, deadline=None)
@given(JSON)
def test_json_round_trips(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("json") / "x.json"
    storage.write_json(path, value)
    assert storage.read_json(path) == value


def test_numpy_values_become_plain_numbers():
    value = {"b": np.int64(3), "a": np.array([[1.5]]), "c": np.bool_(True)}
    assert storage.to_json(value) == '{"a": [[1.5]], "b": 3, "c": true}'


def test_keep_jsonl_drops_what_came_after_a_checkpoint(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write_records(path)
    storage.keep_jsonl(path, lambda record: record["step"] <= 2)
    assert storage.read_jsonl(path) == RECORDS[:2]
    storage.keep_jsonl(tmp_path / "absent.jsonl", lambda record: True)


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    storage.write_json(path, 1)

    def no_space(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(UserError, match=r"x\.json: no space left on device"):
        storage.write_json(path, 2)
    assert storage.read_json(path) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


def append_past_a_limit(path, pipe):
    size = path.stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, size + 20))
    try:
        with storage.JsonLog(path) as log:
            log.append({"pad": "x" * 1000})
    except UserError as error:
        pipe.send(str(error))


def test_a_record_that_does_not_fit_leaves_no_trace(tmp_path):
    path = tmp_path / "log.jsonl"
    write_records(path)
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe()
    worker = context.Process(target=append_past_a_limit, args=(path, sender))
    worker.start()
    worker.join()
    assert "log.jsonl: no space left on device" in receiver.recv()
    assert storage.read_jsonl(path) == RECORDS
    assert not path.with_name("log.jsonl.bad").exists()


def test_sweep_removes_the_files_of_killed_writers_only(tmp_path):
    storage.write_json(tmp_path / "a" / "x.json", 1)
    (tmp_path / "a" / ".x.json.123.tmp").write_text("half")
    assert storage.sweep(tmp_path) == 1
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["x.json"]


def test_arrays_round_trip_and_objects_are_refused(tmp_path):
    path = tmp_path / "x.npz"
    arrays = {"a": np.arange(6, dtype=np.uint8).reshape(2, 3), "b": np.array(["x"])}
    storage.write_npz(path, **arrays)
    read = storage.read_npz(path)
    assert {n: (v.dtype, v.tolist()) for n, v in read.items()} == {
        n: (v.dtype, v.tolist()) for n, v in arrays.items()
    }
    with pytest.raises(ValueError, match="Python objects"):
        storage.write_npz(path, bad=np.array([{}, None]))


def test_every_truncation_of_an_array_file_is_refused(tmp_path):
    path = tmp_path / "x.npz"
    storage.write_npz(path, a=np.arange(5))
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        with pytest.raises(UserError, match=r"x\.npz"):
            storage.read_npz(path)


TRAVERSALS = [
    "..", ".", "", "/", "../x", "x/..", "x/../../y", "/etc/passwd", "..\\x", "\\x",
    "C:\\x", "x\0y", "x\ny", " x", "x ", "~", "~root", "$HOME", "%2e%2e%2f", "x/y",
    "-rf", ".hidden", "x.", "x:y", "*", "a" * 101, "\u2025/x", "\uff0e\uff0e", "x\t",
    "file://x",
]  # fmt: skip


@pytest.mark.parametrize("text", TRAVERSALS)
def test_names_that_lead_elsewhere_are_refused(tmp_path, text):
    with pytest.raises(UserError, match="name"):
        storage.safe_name(text)
    with pytest.raises(UserError, match="name"):
        storage.inside(tmp_path, "ok", text)


@given(st.text(string.ascii_letters + string.digits, min_size=1, max_size=100))
def test_plain_names_are_allowed(text):
    assert storage.safe_name(text) == text


def test_a_link_out_of_the_folder_is_refused(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "out").symlink_to(tmp_path)
    with pytest.raises(UserError, match="leads out of"):
        storage.inside(tmp_path / "run", "out", "x.json")


def test_config_hashes_ignore_order_and_tuple_or_list_but_no_value():
    base = stamps.config_hash({"a": 1, "b": {"c": (1, 2)}})
    assert base == stamps.config_hash(json.loads('{"b": {"c": [1, 2]}, "a": 1}'))
    others = [{"a": 1.0, "b": {"c": [1, 2]}}, {"a": 1, "b": {"c": [2, 1]}}, {}]
    assert base not in map(stamps.config_hash, others)
    assert len(base) == 64


def test_file_hash_sees_content_and_names(tmp_path):
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "d" / "e" / "x").write_text("1")
    before = stamps.file_hash(tmp_path / "d")
    (tmp_path / "d" / "e" / "x").rename(tmp_path / "d" / "e" / "y")
    assert stamps.file_hash(tmp_path / "d") != before
    with pytest.raises(UserError, match="absent"):
        stamps.file_hash(tmp_path / "absent")


def test_stamps_name_what_numbers_depend_on(tmp_path):
    assert {"python", "jax", "numpy"} <= set(stamps.versions())
    assert stamps.git_commit(tmp_path) == "unknown"
