"""`beamer`: one command line for all that runs without a service of its own."""

from beamer.lazy_commands import Command, run_commands

ABOUT = "Stage-aware coflow scheduling for hyper-parameter search."
COMMANDS = {
    "simulate": Command(
        "beamer.simulate.command:simulate",
        "sim",
        "Run a scenario in the flow-level simulator under each policy.",
    ),
    "replay": Command(
        "beamer.simulate.replay_command:replay",
        "sim",
        "Replay a trace of coflows on a big switch under each policy.",
    ),
    "workload": Command(
        "beamer.workloads.command:workload",
        "sim",
        "Write a workload of hyper-parameter searches, drawn from a seed, as a scenario file.",
    ),
    "schedule": Command(
        "beamer.schedule.command:schedule",
        "gpu",
        "Run a search of real training processes under a GPU policy.",
    ),
    "emulate": Command(
        "topologies.emulation.command:emulate",
        "emulation",
        "Run a scenario on real packets under each policy, and in the simulator beside it.",
    ),
    "journal": Command(
        "controller.commands.journal:journal",
        "controller",
        "Check a journal, repair it, or compact it: let a snapshot take the place of its events.",
    ),
    "certs": Command(
        "controller.commands.certificates:certs",
        "identity",
        "Make certificates for a controller, its agents and its switches.",
    ),
    "token": Command(
        "controller.commands.token:token",
        "identity",
        "Print a token for the controller's HTTP API, or make the key that tokens are signed with.",
    ),
    "clean": Command(
        "topologies.emulation.command:clean",
        "emulation",
        "Remove what a killed emulation left behind, and nothing else.",
    ),
}


def main() -> None:
    """Run the command line."""
    run_commands("beamer", ABOUT, COMMANDS)


if __name__ == "__main__":
    main()
