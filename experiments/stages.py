"""The method, one function a stage; each reads and writes files of the run folder."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from aes_hdc import stamps, storage, streams, trajectories
from aes_hdc.curriculum.hdc import Curriculum
from aes_hdc.curriculum.settings import Settings
from aes_hdc.errors import UserError
from aes_hdc.evaluation.report import write_report, write_summary
from aes_hdc.profiles import annotator, files, rules
from aes_hdc.profiles.aggregate import Thresholds, build_profiles
from aes_hdc.profiles.matrices import matrices
from aes_hdc.selection import aes, baselines, record
from experiments import (
    artefacts,
    compiles,
    evaluation,
    gradients,
    preemption,
    trajectory_sets,
)
from experiments.imitation import imitate
from experiments.run import Run
from experiments.runtime import make_learner, save_policy
from experiments.shaping import Shaping
from experiments.suite import load_suite
from experiments.training import Trainer
from experiments.watchdog import Watchdog


def collect(run: Run) -> list[str]:
    """Plays the pool with a weaker and a stronger policy, for profiles."""
    policy = run.policy()
    player = run.player(policy, "weak")
    player.start(policy.params, run.seed, "collect")
    return trajectory_sets.collect(
        run.suite, player, run.folder("collect"), seed=run.seed, **run.config["collect"]
    )


def profile(run: Run) -> list[str]:
    """Annotates the trajectories and aggregates them to profiles."""
    episodes = [
        trajectories.from_json(line)
        for name in ("weak", "strong")
        for line in storage.read_jsonl(run.folder("collect") / f"{name}.jsonl")
    ]
    first, second = (
        annotator.annotate_all(
            episodes, annotator.RuleAnnotator(rules.RULES, shift=shift), rules.MERGE
        )
        for shift in (0, -1)
    )
    profiles = build_profiles(
        first, second, run.suite.versions, Thresholds(**run.config["profile"])
    )
    files.save(run.folder("profile") / "profiles.json", profiles)
    for env_id, entry in profiles.items():
        core = [n for n, a in entry.abilities.items() if a.status == "core"]
        print(f"profile {env_id}: core {', '.join(core) or 'none'} ({entry.evidence})")
    return ["profiles.json"]


def gradient(run: Run) -> list[str]:
    """Measures every pool environment's policy gradient at the base model."""
    policy = run.policy()
    section = dict(run.config["gradients"])
    options = run.config["learner"]
    # Learning signals alone are compared.
    terms = {"kl_coef": 0.0, "entropy_coef": 0.0, "value_coef": 0.0}
    options = options | {"algorithm": "grpo", "loss": options["loss"] | terms}
    learner = make_learner(policy, options, run.config["rollout"], run.suite.max_turns)
    player = run.player(policy)
    return gradients.measure(
        run.suite, player, learner, run.folder("gradients"), seed=run.seed, **section
    )


def select(run: Run) -> list[str]:
    """Picks environments by coverage, redundancy and conflict."""
    section = dict(run.config["selection"])
    profiles = files.load(run.folder("profile") / "profiles.json")
    pool = [env_id for env_id in run.suite.pool if env_id in profiles]
    table = matrices(profiles, pool)
    measured = storage.read_json(run.folder("gradients") / "gradients.json")
    cosine, cosine_se = record.cosines_from_json(measured, pool)
    weights = aes.ability_weights(
        table.core,
        table.soft,
        core_weight=section.pop("core_weight"),
        soft_weight=section.pop("soft_weight"),
    )
    similarity = aes.similarity(
        table.prevalence,
        table.transitions,
        ability_share=section.pop("ability_share"),
        use_idf=section.pop("use_idf"),
    )
    conflict = aes.opposition(cosine, cosine_se, conflict_z=section.pop("conflict_z"))
    rng = streams.generator(run.seed, "select")
    rule, size = section.pop("rule"), section.pop("num_picks") or None
    picks = aes.select(
        pool, weights, table.core, similarity, conflict, num_picks=size, **section
    )
    if not picks and rule != "all":
        raise UserError(
            f"selection.rule={rule}: no environment of the pool has a core ability; "
            "collect more instances, or set selection.rule=all"
        )
    if rule != "aes":
        count = len(pool) if rule == "all" else len(picks)
        order = baselines.random_order(pool, rng, count)
        picks = baselines.blind_picks(order, pool, table.core)
    out = record.selection_to_json(
        pool,
        table.abilities,
        table.core,
        picks,
        similarity,
        cosine,
        dict(run.config["selection"]),
        rng,
    )
    storage.write_json(run.folder("select") / "selection.json", out)
    for pick in picks:
        terms = json.dumps(dataclasses.asdict(pick))
        print(f"select {terms}")
    print(f"select left out: {', '.join(out['left_out']) or 'none'}")
    return ["selection.json"]


def train(run: Run) -> list[str]:
    """Trains on the selected environments, or imitates the oracles of all."""
    if run.config["learner"]["algorithm"] == "imitation":
        return imitate(run)
    return _reinforce(run)


def _reinforce(run: Run) -> list[str]:
    """Trains on the selected environments under the curriculum."""
    config, folder = run.config, run.folder("train")
    section = dict(config["learner"])
    policy = run.policy()
    learner = make_learner(
        policy, config["learner"], config["rollout"], run.suite.max_turns, folder
    )
    ladder = run.suite.ladder
    settings = Settings(num_harness_levels=len(ladder), **config["curriculum"])
    selected = selected_ids(run)
    targets = {env_id: run.suite.targets[env_id] for env_id in selected}
    with (
        run.writers(folder) as writers,
        Watchdog(folder / "hang.txt") as watchdog,
    ):
        trainer = Trainer(
            learner=learner,
            player=run.player(policy),
            curriculum=Curriculum(targets, settings),
            ladder=ladder,
            env_ids=selected,
            folder=folder,
            seed=run.seed,
            frame_px=run.suite.frame_px,
            max_turns=run.suite.max_turns,
            num_groups=section["num_groups"],
            group_size=section["group_size"],
            num_updates=section["num_updates"],
            checkpoint_every=section["checkpoint_every"],
            example_every=section["example_every"],
            config_hash=stamps.config_hash(config),
            git=stamps.git_commit(Path(__file__).parent),
            shaping=Shaping(**section["shaping"]),
            writers=writers,
            watchdog=watchdog,
        )
        trainer.run()
    save_policy(policy, learner.params, folder / "model")
    return ["model", "metrics.jsonl"]


def selected_ids(run: Run) -> list[str]:
    """The picks of the select stage, or the whole pool where it was left out."""
    path = run.folder("select") / "selection.json"
    if not path.exists():
        return list(run.suite.pool)
    return sorted(pick["env_id"] for pick in storage.read_json(path)["picks"])


def evaluate(run: Run) -> list[str]:
    """Plays unseen instances of both panels before and after, on the same seeds."""
    trained = run.folder("train") / "model"
    folders = {"before": ""}
    if run.config["learner"]["algorithm"] == "imitation":
        folders = {"before": str(trained)}  # A base model has nothing before it.
    elif trained.exists():
        folders["after"] = str(trained)
    section = dict(run.config["evaluation"])
    greedy = section.pop("greedy")
    sampling = "greedy" if greedy else _sampling_text(run.config["model"])
    if section["pass_at"] > 1:
        sampling += f", pass@{section['pass_at']} of {section['samples']}"
    players = {}
    for name, folder in folders.items():
        policy = run.policy(folder)
        players[name] = (run.player(policy, name, greedy=greedy), policy.params)
    return evaluation.evaluate(
        run.suite,
        players,
        selected_ids(run) if len(folders) > 1 else [],
        run.folder("evaluate"),
        seed=run.seed,
        sampling=sampling,
        **section,
    )


def _sampling_text(model: dict[str, Any]) -> str:
    """Says what replies are drawn from: the temperature, and what is left out."""
    text = f"temperature {model['temperature']:g}"
    for name, off in (("top_k", 0), ("top_p", 1.0), ("min_p", 0.0)):
        if model[name] != off:
            text += f", {name} {model[name]:g}"
    return text


def report(run: Run) -> list[str]:
    """Writes report.html and summary.json."""
    summary = storage.read_json(write_summary(run.workdir))
    if summary["selected"]:
        names = ", ".join(summary["selected"])
        print(f"selected {len(summary['selected'])} of {summary['pool_size']}: {names}")
    path = write_report(run.workdir)
    print(f"report: {path}")
    return []


FUNCTIONS: dict[str, Callable[[Run], Sequence[str]]] = {
    "collect": collect,
    "profile": profile,
    "gradients": gradient,
    "select": select,
    "train": train,
    "evaluate": evaluate,
    "report": report,
}


def _make(name: str, this: Run) -> Sequence[str]:
    """Runs one stage; all but training may be interrupted anywhere.

    What was whole when it was interrupted is not made again.
    """
    if name == "train":
        return FUNCTIONS[name](this)
    with preemption.interruptible():
        return FUNCTIONS[name](this)


def run(
    config: dict[str, Any],
    workdir: Path,
    stages: Sequence[str] = artefacts.STAGES,
    restart: str | None = None,
) -> None:
    """Runs the stages that are not up to date, in order.

    Args:
        config: the whole config, nested dicts of plain values.
        workdir: the run folder; the same folder again resumes.
        stages: names from `artefacts.STAGES`.
        restart: stage to make again, with all that depends on it.

    Raises:
        UserError: for anything only the user can mend.
    """
    compiles.listen()
    suite = load_suite(**config["environments"])
    this = Run(config, workdir, suite)
    versions = artefacts.stage_versions(suite.versions)
    for stage in artefacts.make_plan(config, workdir, stages, restart, versions):
        if stage.is_current and stage.name != "report":
            continue
        stage.begin()
        stage.finish(_make(stage.name, this))
        print(
            f"{stage.name}: {stage.seconds:.0f}s, {compiles.count()} programs",
            flush=True,
        )
