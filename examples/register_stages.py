"""Register a search by successive halving with a controller, and report its progress: stages, trials, steps and losses.

Start a controller, then this script; `beamer.client` needs no extra, the controller the extra controller:

    python -c 'import json; from topologies import leaf_spine; print(json.dumps(leaf_spine.build().to_dict()))' > fabric.json
    beamer-controller --fabric fabric.json --journal sqlite:///journal.db --policy beamer
    BEAMER_URL=http://127.0.0.1:8657 python examples/register_stages.py

A real search starts processes, which attach and report their own progress: README.md shows how.
"""

from beamer.client import Client, Rung, StudyHandle

RUNGS = (Rung("rung0", trials=4, step=10), Rung("rung1", trials=2, step=20), Rung("rung2", trials=1, step=40))
RATES = (0.01, 0.02, 0.05, 0.1)
PATIENCE_S = 60


def loss(rate: float, step: int) -> float:
    """Return what training would."""
    return (1 - rate) ** step


def search(study: StudyHandle) -> None:
    """Run every trial to the first rung, and of those the best ones to the next."""
    trials = {rate: study.trial(f"rate-{rate}", budget=RUNGS[-1].step) for rate in RATES}
    done = 0
    for rung in RUNGS:
        for rate in sorted(trials, key=lambda rate: loss(rate, done))[rung.trials :]:
            trials.pop(rate).kill()
        with study.stage(rung.name) as stage:  # leaving the block seals the stage: no further trial joins
            for trial in trials.values():
                stage.add(trial, step=rung.step)
                trial.start(workers=["h1", "h2"], sync_bytes=4_000_000)
        for step in range(done + 1, rung.step + 1):
            for rate, trial in trials.items():
                trial.progress(step, loss(rate, step))
        done = rung.step
        if not stage.wait(PATIENCE_S):
            raise SystemExit(f"{rung.name} is not done: is there a controller at BEAMER_URL?")
        print(f"{rung.name} is done: step {done} of {', '.join(trial.name for trial in trials.values())}")
    for trial in trials.values():
        trial.finish()


if __name__ == "__main__":
    with Client() as client:
        with client.study("halving", rungs=RUNGS) as study:  # leaving the block ends the study
            search(study)
        client.flush(PATIENCE_S)
