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
    "status": Command(
        "beamer.inspect.status_command:status",
        "inspect",
        "Show whether the controller leads, what is not installed and by name, and what runs.",
    ),
    "top": Command(
        "beamer.inspect.top_command:top",
        "inspect",
        "Show the running trials: class, progress, loss, hosts and what they send.",
    ),
    "study ls": Command(
        "beamer.inspect.studies:ls",
        "inspect",
        "List the present run of every study that the token may read.",
    ),
    "study show": Command(
        "beamer.inspect.studies:show",
        "inspect",
        "Show a study: its stages and who is missing in them, its trials, and its past runs.",
    ),
    "study watch": Command(
        "beamer.inspect.watch_command:watch",
        "inspect",
        "Follow a study until it ends: a line for each stage and trial that changes.",
    ),
    "study end": Command(
        "beamer.inspect.end_command:end",
        "inspect",
        "End a study: its trials that have not ended count as killed, and its stages are not waited for any more.",
    ),
    "trial show": Command(
        "beamer.inspect.trial_command:show",
        "inspect",
        "Show a trial: attempts, workers and their processes, targets, and why it has its class.",
    ),
    "run": Command(
        "beamer.run.command:run",
        "core",
        "Run any command as a trial of a study.",
        plain="beamer.run.execute:run_plain",
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
    "fabric show": Command(
        "controller.commands.fabric:show",
        "controller",
        "Check the file of a network and print its hosts, switches and cables, or the same file in another form.",
    ),
    "fabric build": Command(
        "controller.commands.fabric_build:build",
        "controller",
        "Make the file of a network from what a site already has, such as CSV tables, and check it as a controller does.",
    ),
    "fabric discover": Command(
        "controller.commands.discover:discover",
        "controller",
        "Find a network by its switches and agents, which connect as to a controller, and print its file.",
    ),
    "fabric check": Command(
        "beamer.inspect.fabric_command:check",
        "inspect",
        "Show where the network is not as its file says: what a controller sees of ports, cables and hosts, and agents say.",
    ),
    "fabric remove-queues": Command(
        "controller.commands.remove_queues:remove_queues",
        "controller",
        "Remove the queues that a controller has made in switches' databases, and no others.",
    ),
    "fabric switch-config": Command(
        "beamer.inspect.switch_config_command:switch_config_command",
        "inspect",
        "Print the configuration by which a switch queues by Beamer's codepoints, for those that speak no OpenFlow.",
    ),
    "doctor host": Command(
        "hostagent.doctor.host:host",
        "agent",
        "Examine a host: kernel, interfaces, path to other hosts, agent, certificates and controller.",
    ),
    "doctor switch": Command(
        "hostagent.doctor.switch:switch",
        "agent",
        "Examine a machine with Open vSwitch: daemons, bridges, controllers, buffers, ports and agent.",
    ),
    "doctor controller": Command(
        "controller.doctor.command:controller",
        "controller",
        "Examine a controller's machine: network's file, journal, addresses, compiled kernels, certificates, token key.",
    ),
    "doctor trainer": Command(
        "beamer.doctor.trainer:trainer",
        "inspect",
        "Examine a machine that trains: controller, token, this host's name, agent and namespaces.",
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
