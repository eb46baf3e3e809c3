"""The unit for systemd and docs/operate.md name what the agent asks for: capabilities, options, bounds."""

import inspect
import re
from configparser import ConfigParser

import controller.commands.serve
from controller.identity.tokens import TokenRole
from hostagent import limits
from hostagent.capabilities import NET_ADMIN, OPTIONAL
from hostagent.command import serve
from hostagent.queues.tree import MAX_CAPPED
from hostagent.workers import attach
from tests.support.checkout import ROOT

DOCS = (ROOT / "docs" / "operate.md").read_text()
NEEDED = {NET_ADMIN, *OPTIONAL}


def unit(name: str = "beamer-hostagent") -> ConfigParser:
    parser = ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(ROOT / "deploy" / f"{name}.service")
    return parser


def test_the_unit_gives_the_capabilities_that_are_needed_and_no_others() -> None:
    service = unit()["Service"]
    assert set(service["AmbientCapabilities"].split()) == NEEDED
    assert set(service["CapabilityBoundingSet"].split()) == NEEDED
    assert service["NoNewPrivileges"] == "yes"
    assert service["KillMode"] == "process", "the guard outlives the agent"


def test_the_units_command_is_one_that_the_agent_takes() -> None:
    options = re.findall(r"--([a-z-]+)", unit()["Service"]["ExecStart"])
    assert options
    assert {option.replace("-", "_") for option in options} <= inspect.signature(serve).parameters.keys()
    wanted = attach._OTHER_DESCRIPTORS + attach._DESCRIPTORS_EACH * attach.MAX_CONNECTIONS
    assert int(unit()["Service"]["LimitNOFILE"]) >= wanted


def test_the_controllers_unit_has_options_that_it_takes_all_credentials_among_them() -> None:
    service = unit("beamer-controller")["Service"]
    options = {option.replace("-", "_") for option in re.findall(r"--([a-z-]+)", service["ExecStart"].replace("\\\n", " "))}
    assert options <= inspect.signature(controller.commands.serve.serve).parameters.keys()
    assert options >= {"tls_cert", "tls_key", "tls_ca", "token_key"}
    assert service["CapabilityBoundingSet"] == ""


def test_the_controllers_unit_has_a_place_for_compiled_kernels_that_its_user_may_write() -> None:
    service = unit("beamer-controller")["Service"]
    assert service["Environment"] == f"NUMBA_CACHE_DIR=/var/cache/{service['CacheDirectory']}"


def test_the_docs_have_a_row_for_every_role() -> None:
    (section,) = re.findall(r"^## Who may do what$(.*?)(?=^## )", DOCS, re.DOTALL | re.MULTILINE)
    assert set(re.findall(r"^\| `(\w+)`", section, re.MULTILINE)) == set(TokenRole)


def test_the_docs_have_a_row_for_every_capability() -> None:
    assert set(re.findall(r"^\| `(CAP_\w+)`", DOCS, re.MULTILINE)) == NEEDED


def test_the_docs_state_the_bounds() -> None:
    stated = {int(number.replace(" ", "")) for number in re.findall(r"\d+(?: \d{3})*", DOCS)}
    assert stated >= {
        limits.MAX_PORTS,
        limits.MAX_WORKERS,
        limits.MAX_CONNECTIONS,
        limits.MAX_ADDRESSES,
        limits.MAX_CLASSES,
        MAX_CAPPED,
        attach.MAX_CONNECTIONS,
        attach.MAX_PER_USER,
    }
    assert limits.MAX_MESSAGE_BYTES == 4 * 2**20
    assert limits.MAX_RATE_BPS == 10 * 10**12
