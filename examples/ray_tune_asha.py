"""A stock search of Ray Tune by ASHA, without Beamer: docs/tuners/ray-tune-callback.md shows the two lines that it takes.

python examples/ray_tune_asha.py
"""

import time

from ray import tune
from ray.tune.schedulers import ASHAScheduler


class Descent(tune.Trainable):
    """Descend from 1 on x squared, at the rate of the configuration."""

    def setup(self, config):
        """Begin."""
        self.x = 1.0

    def step(self):
        """Take a step, which stands for an iteration of training."""
        self.x -= self.config["rate"] * 2 * self.x
        time.sleep(0.05)
        return {"loss": self.x * self.x}


def main():
    """Search, and print the best configuration."""
    tuner = tune.Tuner(
        Descent,
        param_space={"rate": tune.loguniform(1e-3, 0.3)},
        tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=4, scheduler=ASHAScheduler(max_t=16)),
        run_config=tune.RunConfig(name="descent"),
    )
    print(tuner.fit().get_best_result().config)


if __name__ == "__main__":
    main()
