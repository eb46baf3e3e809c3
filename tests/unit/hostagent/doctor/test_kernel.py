"""What is said of a kernel, of nftables and of an agent's capabilities."""

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from beamer.doctor.agent_socket import AgentSocket
from beamer.doctor.findings import CheckVerdict, Finding, Unseen, UnseenError
from beamer.errors import PlatformError
from hostagent.doctor.kernel import (
    KernelFacts,
    has_u32,
    judge_capabilities,
    judge_classifier,
    judge_nftables,
    judge_queues,
    judge_release,
    read_kernel,
)

EVERY = 1 << 19 | 1 << 2
GOOD = KernelFacts("6.18.1", None, True, "nftables v1.0.6 (Lester Gooch #5)\n", None, EVERY, "this process")


def only(found: Iterable[Finding]) -> Finding:
    (finding,) = found
    return finding


@pytest.mark.parametrize(
    ("release", "verdict"),
    [
        ("6.15.0", CheckVerdict.OK),
        ("7.0.1-generic", CheckVerdict.OK),
        ("6.14.9", CheckVerdict.WARNING),
        ("6.1.0-42-amd64", CheckVerdict.WARNING),
        ("own", CheckVerdict.NOT_CHECKED),
    ],
)
def test_the_release_decides_on_time_outs(release: str, verdict: CheckVerdict) -> None:
    assert only(judge_release(replace(GOOD, release=release))).verdict is verdict


def test_a_kernel_without_htb_is_told_which_module_to_load() -> None:
    assert only(judge_queues(GOOD)).verdict is CheckVerdict.OK
    found = only(judge_queues(replace(GOOD, queues=PlatformError("lo: the kernel has no HTB", "load sch_htb"))))
    assert (found.verdict, found.found) == (CheckVerdict.FAULT, "lo: the kernel has no HTB")
    assert found.fix.startswith("modprobe sch_htb")
    refused = only(judge_queues(replace(GOOD, queues=PlatformError("lo: not allowed", "run as root"))))
    assert refused.fix.startswith("run as root")


def test_the_classifier_of_switches_is_looked_for() -> None:
    assert only(judge_classifier(GOOD)).verdict is CheckVerdict.OK
    assert only(judge_classifier(replace(GOOD, u32=False))).fix.startswith("modprobe cls_u32")
    with pytest.raises(UnseenError, match="no list"):
        list(judge_classifier(replace(GOOD, u32=Unseen("no list"))))


def test_the_classifier_is_found_in_the_kernels_lists_or_among_its_symbols(tmp_path: Path) -> None:
    symbols = tmp_path / "kallsyms"
    symbols.write_text("0000 t htb_init\n")
    assert isinstance(has_u32(tmp_path, symbols), Unseen)
    symbols.write_text("0000 t u32_classify\n")
    assert has_u32(tmp_path, symbols) is True
    folder = tmp_path / os.uname().release
    folder.mkdir()
    (folder / "modules.builtin").write_text("kernel/net/sched/sch_htb.ko\n")
    (folder / "modules.dep").write_text("")
    assert has_u32(tmp_path, symbols) is False
    (folder / "modules.dep").write_text("kernel/net/sched/cls_u32.ko.xz:\n")
    assert has_u32(tmp_path, symbols) is True


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (replace(GOOD, nftables=Unseen("nft: No such file")), "nft does not run (nft: No such file)"),
        (replace(GOOD, nftables="nftables v0.8.2 (Joe Btfsplk)"), "v0.8.2 (Joe Btfsplk) is too old"),
        (replace(GOOD, tables=PlatformError("nft: Operation not permitted", "")), "Operation not permitted"),
    ],
)
def test_without_nftables_the_consequence_is_said(facts: KernelFacts, said: str) -> None:
    found = only(judge_nftables(facts))
    assert found.verdict is CheckVerdict.WARNING
    assert said in found.found
    assert "packets twice" in found.found
    assert only(judge_nftables(GOOD)).verdict is CheckVerdict.OK


def test_each_capability_that_is_lacking_is_a_warning() -> None:
    assert only(judge_capabilities(GOOD)).verdict is CheckVerdict.OK
    lacking = list(judge_capabilities(replace(GOOD, capabilities=0, whose="the agent, process 7,")))
    assert [one.verdict for one in lacking] == [CheckVerdict.WARNING] * 2
    assert lacking[0].found.startswith("the agent, process 7, has no CAP_SYS_PTRACE: ")


def test_the_capabilities_are_those_of_the_agent_that_answers() -> None:
    own = read_kernel(AgentSocket("/run/agent.sock", "absent", "start it"))
    of_agent = read_kernel(AgentSocket("/run/agent.sock", pid=os.getpid()))
    assert own.whose == "this process"
    assert of_agent.whose == f"the agent, process {os.getpid()},"
    assert own.capabilities == of_agent.capabilities
    assert own.release == os.uname().release
