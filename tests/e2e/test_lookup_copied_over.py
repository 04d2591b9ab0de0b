"""A lookup beside an agent's rules, over which somebody copies another one while the agent asks it."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from bench.send import tcp
from tests.e2e.agent import Agent, up, vedette
from tests.lookup.tables import lookup_of
from tests.waits import until

RULE = """\
title: Known asset
id: 6a1f0000-0000-4000-8000-000000000079
status: test
logsource:
    product: linux
detection:
    known:
        user|expand: '%users%'
    condition: known
level: low
"""
INPUT = '[[input]]\nname = "in"\ntype = "syslog"\nformat = "syslog"\ntcp = "127.0.0.1:{port}"\n'


def log_in(agent: Agent, *users: str) -> None:
    said = "<38>Nov 20 10:00:00 web1 sshd[1]: Accepted password for {} from 192.0.2.1 port 22 ssh2\n"
    tcp(("127.0.0.1", agent.port), "".join(map(said.format, users)).encode())


def alerts(agent: Agent, number: int) -> None:
    until(f"alert {number}", lambda: agent.alive() and agent.status()["alerts"]["made"] == number)


def error(agent: Agent) -> str:
    return (agent.alive() and agent.status()["rules"]["error"]) or ""


@pytest.mark.long
@pytest.mark.parametrize("isolation", ["merged", "strict"])
def test_it_answers_until_the_new_one_is_whole(tmp_path: Path, isolation: str) -> None:
    """The file is cut off and written in place, as ``cp`` does: the agent lives, and says which file it does not take;
    also what starts meanwhile answers as before. Then it answers from the new one."""
    # Over 3 s: four starts of an agent, which compiles rules twice.
    (rules := tmp_path / "rules").mkdir()
    (rules / "rule.yml").write_text(RULE)
    (lookups := tmp_path / "lookups").mkdir()
    path = lookups / "users.vlookup"
    lookup_of(path, "user owner", "user:nocase", [(f"it{number}", "it") for number in range(5000)]).close()
    rows = [(f"ot{number}", "ot") for number in range(5000)]
    new = lookup_of(tmp_path / "new.vlookup", "user owner", "user:nocase", rows)
    agent = Agent(tmp_path / "a", rules=rules, lookup=lookups, rules_poll=0.2)
    settings = INPUT.format(port=agent.port)
    if isolation == "strict":
        settings += f'[[ruleset]]\nname = "own"\npaths = ["{rules}"]\nlookups = ["{lookups}"]\nisolation = "strict"\n'
    agent.configure(settings)
    rule_sets = {None, "own"} if isolation == "strict" else {None}
    each = len(rule_sets)
    with up(agent):
        log_in(agent, "it1", "ot1")
        alerts(agent, each)
        with path.open("r+b") as file:  # what `cp new.vlookup lookups/users.vlookup` does
            file.truncate()
            log_in(agent, "it1000", "ot1000")  # no line twice: its answer would be remembered
            alerts(agent, 2 * each)
            file.write(new.data[: new.size // 2])
            file.flush()
            until("the refusal", lambda: str(path) in error(agent))
            assert vedette("status", "-c", agent.config, code=1).stdout.count("users.vlookup")
            log_in(agent, "it2000", "ot2000")
            alerts(agent, 3 * each)
            agent.kill()
            agent.up()
            assert str(path) in error(agent)
            log_in(agent, "it3000", "ot3000")
            alerts(agent, 4 * each)
            file.write(new.data[new.size // 2 :])
        users = count(4000)

        def switched() -> bool:
            log_in(agent, f"ot{next(users)}")
            return {row["bundle"] for row in agent.alerts() if "ot" in dict(row["fields"])["user"]} == rule_sets

        until("alerts by the new lookup", lambda: agent.alive() and switched())
        assert not error(agent)
