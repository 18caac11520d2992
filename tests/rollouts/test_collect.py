"""The loop that plays: every ending has its label, every task its place."""

from types import SimpleNamespace

import pytest

from aes_hdc import envs
from aes_hdc.envs.base import MAX_BAD
from aes_hdc.episode import LABELS, Harness, Task
from aes_hdc.rollouts.collect import Reply, play
from aes_hdc.rollouts.players import OraclePlayer

LAMPS = Task("lights_out", 3, 1, Harness.RULES)
COUNT = Task("count_objects", 3, 0)


class Scripted:
    """Says what a function of the request says; counts what it is asked.

    Answers only `batch` requests a call, the last ones first.
    """

    name = "scripted"

    def __init__(self, say, *, capacity=4, batch=100):
        self.say, self.capacity, self.batch = say, capacity, batch
        self.most_open, self.seen = 0, []

    def act(self, requests):
        self.most_open = max(self.most_open, len(requests))
        chosen = [*requests][::-1][: self.batch]
        self.seen += [(r.index, r.turn) for r in chosen]
        replies = ((r.index, self.say(r)) for r in chosen)
        return {i: r if isinstance(r, Reply) else Reply(r) for i, r in replies}


def oracle(request):
    return request.env.oracle_reply(request.state)


def run(task, say, **settings):
    (episode,) = play([task], Scripted(say), frame_px=96, **settings)
    return episode


def wrong_count(request):
    right = oracle(request).split()
    return f"{right[0]} {int(right[1]) % 3 + 1}"


def idle(request):
    """Presses one lamp on and off: legal, and never a solution."""
    return "press 1 1"


def broken(request):
    raise RuntimeError("the environment fell over")


CASES = {
    "success": (LAMPS, oracle, {}),
    "wrong": (COUNT, wrong_count, {}),
    "turn_limit": (LAMPS, idle, {}),
    "invalid_limit": (LAMPS, lambda request: "what?", {}),
    "length": (LAMPS, lambda request: Reply("press 1 1 and", "length"), {}),
    "overflow": (LAMPS, lambda request: Reply("", "overflow"), {}),
}


@pytest.mark.parametrize("label", CASES)
def test_every_ending_has_its_label(label):
    task, say, settings = CASES[label]
    episode = run(task, say, **settings)
    assert episode.label == label
    assert episode.label in LABELS
    assert all(turn.label == "running" for turn in episode.turns[:-1])
    assert episode.success == (label == "success")
    assert episode.reward == (1.0 if label == "success" else 0.0)
    assert episode.task == task
    assert episode.policy == "scripted"
    if label == "invalid_limit":
        assert len(episode.turns) == MAX_BAD
    if label in ("length", "overflow"):
        turn = episode.turns[0]
        assert (turn.action, turn.valid, turn.events) == ("", False, ())


def test_a_broken_environment_is_labelled_and_ends_alone(monkeypatch):
    env_class = type(envs.make("count_objects"))
    monkeypatch.setattr(env_class, "apply", broken)
    player = Scripted(oracle)
    first, second = play([COUNT, LAMPS], player, frame_px=96)
    assert first.label == "env_error"
    assert first.reward == 0.0
    assert second.label == "success"


def test_own_turn_limit_cuts_what_the_environment_would_go_on_with():
    episode = run(LAMPS, idle, max_turns=2)
    assert [turn.label for turn in episode.turns] == ["running", "turn_limit"]
    assert len(run(LAMPS, idle).turns) > 2
    # A success in the last turn is a success.
    plan = len(run(LAMPS, oracle).turns)
    assert run(LAMPS, oracle, max_turns=plan).label == "success"


def test_results_stand_in_the_order_of_the_tasks_whatever_ends_first():
    tasks = [Task("lights_out", seed, seed % 2) for seed in range(9)]
    tasks[4] = COUNT
    player = Scripted(oracle, capacity=3, batch=2)
    ended = []
    episodes = play(tasks, player, frame_px=96, progress=ended.append)
    assert [episode.task for episode in episodes] == tasks
    assert all(episode.success for episode in episodes)
    assert ended == [*range(1, 10)]
    order = [index for index, turn in player.seen if turn == 0]
    assert order != sorted(order), "the player should have mixed them up"


@pytest.mark.parametrize("capacity", [1, 3, 50])
def test_capacity_is_respected_and_the_queue_drains(capacity):
    tasks = [Task("lights_out", seed, 0) for seed in range(8)]
    player = Scripted(oracle, capacity=capacity)
    episodes = play(tasks, player, frame_px=96)
    assert player.most_open == min(capacity, 8)
    assert len(episodes) == 8
    # Every turn of every episode is asked for exactly once.
    expected = [(i, t) for i, e in enumerate(episodes) for t in range(len(e.turns))]
    assert sorted(player.seen) == expected


def test_how_many_are_open_changes_no_episode():
    tasks = [Task("lights_out", seed, 1) for seed in range(6)]
    played = [
        play(tasks, OraclePlayer(noise=0.5, capacity=capacity), frame_px=96)
        for capacity in (1, 6)
    ]
    for one, many in zip(*played, strict=True):
        assert [t.reply for t in one.turns] == [t.reply for t in many.turns]
        assert [t.label for t in one.turns] == [t.label for t in many.turns]


def test_observations_are_those_that_were_answered():
    episode = run(LAMPS, oracle)
    env = envs.make("lights_out")
    state = env.reset(LAMPS.seed, LAMPS.level)
    for turn in episode.turns:
        expected = env.render(state, 96)
        assert (turn.observation.frame == expected).all()
        env.step(state, turn.reply)


def test_no_tasks_make_no_episodes():
    assert play([], SimpleNamespace(name="x", capacity=1), frame_px=96) == []
