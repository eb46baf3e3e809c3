"""The commands that ask a controller, against one that is served: what they print, say and end with."""

import json
import secrets
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

import beamer.cli
from beamer.client import Client
from beamer.inspect.api import ControllerApi
from beamer.inspect.top_command import Frame
from beamer.network.protocol import Counters, WorkerBytes
from beamer.testing.fabrics import star
from controller.identity.credentials import Credentials
from controller.identity.tokens import DAY_S, Claims, TokenKey, TokenRole, sign_token
from controller.runtime import Runtime
from tests.support.commands import run_here
from tests.support.inspected import STUDY, get, place, put, register
from tests.support.served_controller import PATIENCE_S, Served, served

AGENTS = star(4)
FABRIC = replace(AGENTS, hosts=tuple(replace(host, agent=None) for host in AGENTS.hosts))
KEY = TokenKey(secrets.token_bytes(32))
NOBODY = "http://127.0.0.1:9"  # Port 9 is discard's, which no machine of today serves.


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A controller whose search no test of this module changes."""
    with served(FABRIC, tmp_path_factory.mktemp("inspected") / "journal.db", policy="beamer") as started:
        register(started)
        yield started


@pytest.fixture
def changed(tmp_path: Path) -> Iterator[Served]:
    """A controller of one test's own."""
    with served(FABRIC, tmp_path / "journal.db", policy="beamer") as started:
        register(started)
        yield started


def beamer_at(url: str, *arguments: str, **environment: str) -> "CompletedProcess[str]":
    return run_here(beamer.cli.main, *arguments, env={"BEAMER_URL": url, "COLUMNS": "100", **environment})


def printed(url: str, *arguments: str, code: int = 0) -> str:
    done = beamer_at(url, *arguments)
    assert (done.returncode, done.stderr) == (code, ""), done.stderr
    return done.stdout


def document(url: str, *arguments: str, code: int = 0) -> Any:
    return json.loads(printed(url, *arguments, "--json", code=code))


def refused(url: str, *arguments: str, **environment: str) -> str:
    done = beamer_at(url, *arguments, **environment)
    # The served controller logs to the same output.
    assert (done.returncode, [line for line in done.stdout.splitlines() if "request denied" not in line]) == (2, [])
    (line,) = done.stderr.splitlines()
    return line


def row_of(table: str, first: str) -> list[str]:
    """Return the cells of the row that begins with a name."""
    (row,) = [line.split() for line in table.splitlines() if line.split()[:1] == [first]]
    return row


def test_ls_lists_every_study_with_its_trials_and_the_stages_that_are_waited_for(controller: Served) -> None:
    shown = printed(controller.url, "study", "ls")
    row = row_of(shown, "mnist")
    assert row[:3] == ["mnist", "one", "active"]
    assert "1 waiting, 2 running" in shown
    assert "rung0 0/3" in shown
    assert row_of(shown, "over")[:3] == ["over", "past", "ended"]


def test_ls_in_json_counts_trials_and_names_stages(controller: Served) -> None:
    mnist, over = document(controller.url, "study", "ls")["studies"]
    assert mnist["trials"] == {"running": 2, "waiting": 1}
    (stage,) = mnist["stages"]
    assert (stage["name"], stage["status"], stage["trials"], stage["missing"]) == ("rung0", "sealed", 3, 3)
    assert (over["name"], over["status"], over["trials"], over["stages"]) == ("over", "ended", {}, [])


def test_show_says_who_is_missing_in_a_stage_and_how_far_each_trial_is(controller: Served) -> None:
    shown = printed(controller.url, "study", "show", "mnist")
    assert row_of(shown, "rung0")[:4] == ["rung0", "sealed", "0/3", "20"]
    assert row_of(shown, "rung0")[-3:] == ["a,", "b,", "c"]
    classes = {key: trial.klass for key, trial in controller.ask(lambda runtime: dict(runtime.plan.jobs)).items()}
    assert row_of(shown, "a") == ["a", "running", str(classes["mnist/a"]), "5/20", "0.25", "rung0", "h1,", "h2"]
    assert row_of(shown, "c") == ["c", "waiting", "-", "0/20", "-", "rung0", "-"]


def test_show_in_json_is_what_the_controller_answers(controller: Served) -> None:
    assert document(controller.url, "study", "show", "mnist") == get(controller, STUDY)
    assert document(controller.url, "trial", "show", "mnist", "a") == get(controller, f"{STUDY}/trials/a")


def test_a_trial_says_why_it_has_its_class(controller: Served) -> None:
    shown = " ".join(printed(controller.url, "trial", "show", "mnist", "a").split())
    why = get(controller, f"{STUDY}/trials/a")["decision"]
    assert f"place {why['place']} of 2 jobs in the order" in shown
    assert "waits stage rung0, of whose trials 2 run; the slowest is b" in shown
    assert "left 15 steps" in shown
    assert "bottleneck h1 to s1 at 20 Mbit/s" in shown
    assert "1 job there for" in shown, "the slower trial of its stage goes first"
    assert "bytes of a synchronisation 600 kB declared 600 kB" in shown


def test_a_trial_that_does_not_run_has_no_class_and_says_so(controller: Served) -> None:
    shown = " ".join(printed(controller.url, "trial", "show", "mnist", "c").split())
    assert "class none: it is waiting" in shown
    assert "attempts none: it has not been started" in shown


def test_top_shows_one_look_where_there_is_no_terminal(controller: Served) -> None:
    shown = printed(controller.url, "top")
    assert "1 waiting, 2 running" in shown.splitlines()[0]
    assert {tuple(line.split()[:2]) for line in shown.splitlines() if "mnist" in line} == {("mnist", "a"), ("mnist", "b")}
    found = document(controller.url, "top")
    assert {(row["study"], row["trial"], row["progress"]) for row in found["trials"]} == {
        ("mnist", "a", "5/20"),
        ("mnist", "b", "0/20"),
    }
    assert printed(controller.url, "top", "--study", "over").splitlines()[-1].strip() == "no trial runs"


def test_status_says_what_runs_and_that_all_is_installed(controller: Served) -> None:
    shown = printed(controller.url, "status")
    for words in (
        "leads",
        "by beamer, 8 classes",
        "1 of 1 have the plan",
        "1 active, 0 silent, 1 ended",
        "1 waiting, 2 running",
    ):
        assert words in shown
    assert "problems    none" in shown
    found = document(controller.url, "status")
    assert found["healthy"] is True
    assert (found["not_installed"], found["problems"], found["gpus"]["nodes"]) == ([], [], 0)


def test_status_names_the_switches_and_agents_that_lack_the_plan(tmp_path: Path) -> None:
    fabric = replace(AGENTS, switches=tuple(replace(switch, agent="queues") for switch in AGENTS.switches))
    with served(fabric, tmp_path / "journal.db") as started:
        shown = printed(started.url, "status", code=1)
        assert "agents not connected: h1, h2, h3, h4, queues; with them the queues of s1" in " ".join(shown.split())
        found = document(started.url, "status", code=1)
        assert found["healthy"] is False
        assert {"kind": "agent", "name": "queues", "state": "not connected", "generation": 0, "queues_of": ["s1"]} in found[
            "not_installed"
        ]
        started.ask(lambda runtime: runtime.installation.switch_lost("s1"))
        assert "switch not connected: s1" in printed(started.url, "status", code=1)


def test_no_controller_is_said_with_what_to_do(controller: Served) -> None:
    for command in ("status", "top", "study ls", "study watch s", "study end s", "trial show s t"):
        line = refused(NOBODY, *command.split())
        assert NOBODY in line
        assert "Connection refused" in line
        assert "--url" in line
    assert "url: got 'ftp://x', expected the controller's URL" in refused("ftp://x", "status")
    assert row_of(printed(controller.url.removeprefix("http://"), "study", "ls"), "mnist")


def test_of_several_controllers_the_one_that_leads_is_asked(controller: Served) -> None:
    both = f"{NOBODY}, {controller.url}"
    assert row_of(printed(both, "study", "ls"), "mnist")
    found = document(both, "status", code=1)
    assert [one["state"] for one in found["controllers"]] == ["does not answer", "leads"]
    assert NOBODY in found["problems"][0]


def test_unknown_names_are_answered_with_the_nearest_one(controller: Served) -> None:
    assert "did you mean 'mnist'?" in refused(controller.url, "study", "show", "mnits")
    assert "the present one is one" in refused(controller.url, "study", "show", "mnist", "--run", "two")
    assert "trial: got 'd'" in refused(controller.url, "trial", "show", "mnist", "d")


def test_what_is_no_controller_is_said(controller: Served) -> None:
    assert "is no controller" in refused(f"{controller.url}/elsewhere", "study", "ls")


def test_a_token_is_asked_for_by_name_and_read_from_a_file(tmp_path: Path) -> None:
    token = sign_token(KEY, Claims("mnist", TokenRole.READER), time.time(), DAY_S)
    operator = sign_token(KEY, Claims("*", TokenRole.OPERATOR), time.time(), DAY_S)
    (tmp_path / "token").write_text(token)
    with served(FABRIC, tmp_path / "journal.db", credentials=Credentials(tokens=KEY)) as started:
        put(started, STUDY, {"run": "one"}, operator)
        line = refused(started.url, "study", "ls")
        assert "there is no token" in line
        assert "BEAMER_TOKEN_FILE" in line
        reader = {"BEAMER_TOKEN_FILE": str(tmp_path / "token")}
        done = beamer_at(started.url, "study", "ls", **reader)
        assert row_of(done.stdout, "mnist")
        line = refused(started.url, "study", "end", "mnist", "--yes", **reader)
        assert "the reader of study 'mnist' may not" in line
        assert token not in line
        done = beamer_at(started.url, "status", **reader)
        assert done.returncode == 0
        assert "/v1/plan: the token does not allow to read it" in done.stdout
        assert "BEAMER_TOKEN" in refused(started.url, "study", "ls", BEAMER_TOKEN="x" * 20)


def test_end_ends_the_study_once_and_says_what_was_killed(changed: Served) -> None:
    assert "with 3 trials" in refused(changed.url, "study", "end", "mnist")
    assert get(changed, STUDY)["status"] == "active"
    assert "and with it 3 trials: a, b, c" in printed(changed.url, "study", "end", "mnist", "--yes")
    answer = get(changed, STUDY)
    assert answer["status"] == "ended"
    assert answer["trial_counts"] == {"killed": 3}
    assert "nothing was changed" in printed(changed.url, "study", "end", "mnist", "--yes")
    assert document(changed.url, "study", "end", "mnist") == {"study": "mnist", "run": "one", "changed": False, "killed": []}


def test_end_leaves_another_run_alone(changed: Served) -> None:
    put(changed, STUDY, {"run": "two"})
    assert "nothing was changed" in printed(changed.url, "study", "end", "mnist", "--run", "one", "--yes")
    assert get(changed, STUDY)["status"] == "active"


def test_names_and_reasons_steer_no_terminal(monkeypatch: pytest.MonkeyPatch, controller: Served) -> None:
    answer = {**get(controller, f"{STUDY}/trials/a"), "quarantined": "\x1b[31mred\n[bold]bold[/bold]"}
    monkeypatch.setattr("beamer.inspect.trial_command.ControllerApi.get", lambda self, path: answer)
    shown = printed(controller.url, "trial", "show", "mnist", "a")
    assert "\x1b" not in shown
    assert r"\x1b[31mred\n[bold]bold[/bold]" in shown


def test_many_trials_are_cut_unless_all_are_asked_for(changed: Served) -> None:
    for i in range(60):
        put(changed, f"/v1/studies/over2/trials/t{i:02}", {}) if i else put(changed, "/v1/studies/over2", {"run": "r"})
    shown = printed(changed.url, "study", "show", "over2")
    assert "and 9 more trials: --all shows them" in shown
    assert "t59" not in shown
    assert "t59" in printed(changed.url, "study", "show", "over2", "--all")


def test_members_are_shown_where_the_controller_names_them(monkeypatch: pytest.MonkeyPatch, controller: Served) -> None:
    answer = {**get(controller, STUDY), "members": [{"name": "tuner-1", "host": "h1", "joined_s": 1.0, "heard_s": time.time()}]}
    monkeypatch.setattr("beamer.inspect.studies.ControllerApi.get", lambda self, path: answer)
    assert row_of(printed(controller.url, "study", "show", "mnist"), "tuner-1")[:2] == ["tuner-1", "h1"]


@pytest.mark.parametrize("command", ["study ls", "study show mnist", "trial show mnist a", "top", "status"])
def test_no_line_is_wider_than_a_narrow_terminal(
    command: str, changed: Served, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    long = "n" * 63
    put(changed, f"/v1/studies/{long}", {"run": long})
    put(changed, f"/v1/studies/{long}/trials/{long}", {})
    put(changed, f"/v1/studies/{long}/trials/{long}/attempts/{long}", place("h1", "h2", "h3", "h4"))
    monkeypatch.setattr("beamer.inspect.text.FILE_COLUMNS", 60)
    shown = printed(changed.url, *command.split())
    assert max(map(len, shown.splitlines())) <= 60
    assert long not in shown


def test_the_place_of_a_trial_is_of_the_present_attempt(changed: Served) -> None:
    put(changed, f"{STUDY}/trials/a/attempts/second", place("h3", "h4"))

    def decided(runtime: Runtime) -> bool:
        attempt = runtime.tracker.trials["mnist/a"].attempt
        assert attempt is not None
        return runtime.basis is not None and ("mnist/a", attempt.started_s) in runtime.basis.snapshot.jobs.run

    assert changed.until(decided)
    assert get(changed, f"{STUDY}/trials/a")["decision"]["bottleneck"]["src"] == "h3"


def test_names_of_any_characters_are_asked_for_and_shown(changed: Served) -> None:
    name = "lr=0.1, a/b %41 ü"
    with Client(changed.url, timeout_s=PATIENCE_S) as client:
        study = client.study(name, run="r 1")
        with study.stage("rung/0") as stage:
            stage.add(study.trial(name), step=5)
        client.trial(name, name, run="r 1").start(["h1", "h2"], sync_bytes=1_000_000)
        assert client.flush(PATIENCE_S)
        assert changed.until(lambda runtime: len(runtime.plan.jobs) == 3)
        shown = printed(changed.url, "study", "show", name, "--run", "r 1")
        assert "rung/0" in shown
        assert f"{name}  running" in shown
        host = socket.gethostname()
        assert host in shown, "the process that takes part in it is named"
        assert "stage rung/0, of whose trials it alone runs" in printed(changed.url, "trial", "show", name, name)
        study.end()


def counted(job: str, sent_bytes: int, at_s: float) -> Counters:
    return Counters(at_s=at_s, ports=(), workers=(WorkerBytes(job=job, rank=0, sent_bytes=sent_bytes),))


def test_top_shows_what_agents_count_and_at_which_rate(changed: Served) -> None:
    def count(agent: str, sent_bytes: int, at_s: float) -> None:
        changed.ask(lambda runtime: runtime.agents._counters.update({agent: counted("mnist/a", sent_bytes, at_s)}))

    def row() -> dict[str, Any]:
        frame.look()
        (found,) = [one for one in frame.trials if one["trial"] == "a"]
        return found

    with ControllerApi(changed.url) as api:
        frame = Frame(api, "mnist")
        assert (row()["sent_bytes"], row()["rate_bps"]) == (None, None)
        count("h1", 1_000_000, 100.0)
        count("h2", 3_000_000, 101.0)
        assert (row()["sent_bytes"], row()["rate_bps"]) == (4_000_000, None)
        count("h1", 2_000_000, 102.0)
        count("h2", 4_000_000, 103.0)
        assert row()["rate_bps"] == pytest.approx(8 * 2_000_000 / 2.0)
        assert row()["rate_bps"] == pytest.approx(8 * 2_000_000 / 2.0), "agents have counted nothing new"
        count("h1", 10, 104.0)  # It was started again, and counts anew.
        assert row()["rate_bps"] is None
    assert row_of_trial(printed(changed.url, "top"), "a")[5:9] == ["-", "4", "MB", "h1,"]


def row_of_trial(table: str, name: str) -> list[str]:
    (row,) = [line.split() for line in table.splitlines() if line.split()[1:2] == [name]]
    return row


def test_a_controller_of_version_1_is_shown_as_far_as_it_tells(
    monkeypatch: pytest.MonkeyPatch, controller: Served
) -> None:  # fmt: skip
    def older(path: str) -> Any:
        answer = get(controller, path.partition("?")[0])
        for study in answer.get("studies", [answer]):
            for name in ("trial_counts", "members", "connected", "owned_by_agents", "decision"):
                study.pop(name, None)
            for trial in study.get("trials", ()):
                if isinstance(trial, dict):
                    del trial["sent_bytes"], trial["counted_s"]
        return answer

    monkeypatch.setattr("beamer.inspect.api.ControllerApi.get", lambda self, path: older(path))
    monkeypatch.setattr("beamer.inspect.api.ControllerApi.allowed", lambda self, path: older(path))
    assert "1 waiting, 2 running" in printed(controller.url, "study", "ls")
    assert "problems    none" in printed(controller.url, "status")
    assert row_of(printed(controller.url, "study", "show", "mnist"), "a")[:2] == ["a", "running"]
    assert "why is not known" in printed(controller.url, "trial", "show", "mnist", "a")
    assert "5/20" in printed(controller.url, "top")
