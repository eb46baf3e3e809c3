"""Who runs inside another project's simulator, and what it is told: read from the config here, and by the peer's interpreter.

Only the standard library and pydantic are imported: a peer's environment has little else.
"""

from typing import Any, Literal

from pydantic import BaseModel

Knowledge = Literal["nothing", "declared end", "true end"]
"""What a policy is told of when a job ends: nothing; the user's word, in epochs; what the simulator itself goes by."""

Sizes = Literal["users'", "free"]
"""At which numbers of GPUs and batch sizes jobs are submitted: those that their users chose, or one GPU with room to grow."""


UNKNOWN_END = 10**12  # iterations: far beyond any job's, where nothing is known


class PeerContender(BaseModel, extra="forbid", frozen=True):
    """A policy that runs inside a peer's simulator.

    own: whether it is the peer's; then everything else is as the peer has it, and `knows` and `sizes` only describe that.
    batches: who chooses the batch size of a job whose batch size is free: the job itself, as under the peer's policies, or the
    policy. label: what tables call it; "": the policy's name, then the parameters.
    """

    policy: str
    own: bool = False
    parameters: dict[str, Any] = {}
    knows: Knowledge = "nothing"
    sizes: Sizes = "free"
    batches: Literal["job", "policy"] = "job"
    label: str = ""

    def __hash__(self) -> int:
        return hash(self.model_dump_json())  # parameters may be lists

    @property
    def name(self) -> str:
        """What tables call it."""
        return self.label or " ".join([self.policy, *(f"{key}={value}" for key, value in self.parameters.items())])

    @property
    def title(self) -> str:
        """Whose policy it is, what it is told, and the sizes: unique in a table."""
        whose = "theirs" if self.own else "ours"
        chosen = ", batch size by the policy" if self.batches == "policy" else ""
        return f"{self.name} ({whose}; knows {self.knows}; {self.sizes} sizes{chosen})"


class PeerRun(BaseModel, extra="forbid", frozen=True):
    """One simulation.

    workload: as the peer calls it. work: what the peer's generator of workloads is told, if it has one. nodes; gpus: of each.
    interval_s: between two decisions. original: leave the peer's libraries as they are, where equal functions would be sooner.
    """

    peer: str
    workload: str
    contender: PeerContender
    seed: int
    nodes: int
    gpus: int
    interval_s: int
    work: dict[str, float] = {}
    original: bool = False

    def __hash__(self) -> int:
        return hash(self.model_dump_json())
