"""The cases of The Update Framework's conformance suite that are about keys and delegations, by its names
(``test_conformance.py``)."""

from __future__ import annotations

from pathlib import Path

import pytest
from securesystemslib.signer import SSlibKey
from tuf.api.metadata import DelegatedRole, Delegations, Targets

from tests.fleet.simulated import KEYS, LATER, TOP, Client, Repository
from vedette.fleet.trust import TrustRefused


@pytest.fixture
def repository() -> Repository:
    return Repository()


@pytest.fixture
def client(tmp_path: Path, repository: Repository) -> Client:
    return Client(tmp_path / "agent", repository)


# --- keys: KEYS/THRESHOLD/SIGNERS of each version; "!" before one that is refused

ROOTS = {
    "1-of-1-key-rotation": ["a/1/a", "b/1/ba", "b/1/b"],
    "1-of-1-key-rotation-unused-signatures": ["a/1/iaj", "b/1/ibaj", "b/1/ibj"],
    "3-of-5-sign-with-different-keycombos": ["abcde/3/ace", "abcde/3/bcd", "abcde/3/cde", "abcde/3/abe"],
    "3-of-5-one-key-rotated": ["abcde/3/ace", "abcdf/3/abc"],
    "3-of-5-one-key-rotated-with-intermediate-step": ["abcde/3/ace", "abdef/3/acef", "abdef/3/aef"],
    "3-of-5-all-keys-rotated-with-intermediate-step": ["abcde/3/ace", "fghij/3/acefgh", "fghij/3/hij"],
    "1-of-3-threshold-increase-to-2-of-3": ["abc/1/a", "abc/2/ab"],
    "2-of-3-threshold-decrease-to-1-of-3": ["abc/2/bc", "abc/1/bc", "abc/1/c"],
    "1-of-2-threshold-increase-to-2-of-2": ["a/1/a", "ab/2/ab"],
    "1-of-1-key-rotation-fail-not-signed-with-old-key": ["a/1/a", "!b/1/bij"],
    "1-of-1-key-rotation-fail-not-signed-with-new-key": ["a/1/a", "!b/1/aij"],
    "3-of-5-one-key-rotate-fails-not-signed-with-3-new-keys": ["abcde/3/ace", "!abdef/3/ace"],
    "3-of-5-one-key-rotate-fails-not-signed-with-3-old-keys": ["abcde/3/ace", "!abdef/3/aef"],
    "1-of-3-threshold-bump-to-2-of-3-fails-new-threshold-not-reached": ["abc/1/a", "!abc/2/b"],
    "2-of-3-threshold-decr-to-1-of-3-fails-old-threshold-not-reached": ["abc/2/ab", "!abc/1/a"],
}
OTHERS = {
    "1-of-1-key-rotation": "b/1/b",
    "1-of-1-key-rotation-unused-signatures": "a/1/iaj",
    "1-of-1-key-rotation-fail-not-signed-with-new-key": "!b/1/aij",
    "3-of-5-one-key-signature-wrong-not-signed-with-3-expected-keys": "!abdef/3/ace",
    "2-of-5-one-key-signature-missing-threshold-not-reached": "!abdef/3/ae",
    **{f"3-of-5-sign-{signers}": f"abcde/3/{signers}" for signers in ("ace", "aeb", "abd", "bcd", "cde")},
}


def entrusted(r: Repository, role: str, text: str) -> bool:
    """Whether what is to be published so is to be taken."""
    keys, threshold, signers = text.lstrip("!").split("/")
    r.entrust(role, [KEYS[one] for one in keys], int(threshold))
    r.signers[role] = [KEYS[one] for one in signers]
    return not text.startswith("!")


@pytest.mark.parametrize("case", ROOTS)
def test_root_rotation(case: str, tmp_path: Path) -> None:
    """An agent that has the first root takes all that follow, up to one that lacks a threshold."""
    r = Repository()
    r.signed["root"].version, good = 0, []
    for text in ROOTS[case]:
        good.append(entrusted(r, "root", text))
        r.next("root")
    client = Client(tmp_path / "agent", r)
    if all(good):
        client.refresh()
    else:
        client.refuse("signatures")
    assert client.version("root") == sum(good)


@pytest.mark.parametrize("role", ["timestamp", "snapshot", "targets"])
@pytest.mark.parametrize("case", OTHERS)
def test_non_root_rotations(case: str, role: str, repository: Repository, client: Client) -> None:
    """A role's next version is taken when the keys that the newest root names have signed it."""
    client.refresh()
    good = entrusted(repository, role, OTHERS[case])
    repository.publish("root", *(["targets"] if role == "targets" else []))
    if good:
        client.refresh()
    else:
        client.refuse("signatures")
    assert (client.version("root"), client.version(role)) == (2, 2 if good else 1)


def test_one_key_under_two_ids_of_a_delegation(repository: Repository, client: Client) -> None:
    """As for the roles of the root (``duplicate_keys_root``)."""
    client.refresh()
    delegations = repository.signed["targets"].delegations
    role, second = delegations.roles["rollout"], "1" * 64
    key = delegations.keys[role.keyids[0]]
    delegations.keys[second] = SSlibKey(second, key.keytype, key.scheme, dict(key.keyval))
    role.keyids.append(second)
    repository.publish("targets")
    client.refuse("keys")


# --- delegations: an agent follows the one to ``rollout``, and no other

GRAPHS = {
    "basic-delegation": "targets>A",
    "single-level-delegations": "targets>A targets>B",
    "two-level-delegations": "targets>A targets>B B>C",
    "two-level-test-DFS-order-of-traversal": "targets>A targets>B A>C A>D",
    "three-level-delegation-test-DFS-order-of-traversal": "targets>A targets>B A>C C>D",
    "two-level-terminating-ignores-all-but-roles-descendants": "targets>A targets>B A>C! A>D",
    "three-level-terminating-ignores-all-but-roles-descendants": "targets>A targets>B A>C! C>D",
    "two-level-ignores-all-branches-not-matching-paths": "targets>A:*.py targets>B A>C",
    "three-level-ignores-all-branches-not-matching-paths": "targets>A targets>B A>C:*.py C>D",
    "cyclic-graph": "targets>A targets>B B>C C>D D>B",
    "two-roles-delegating-to-a-third": "targets>A targets>B B>C A>C",
    "two-roles-delegating-to-a-third-different-paths": "targets>A targets>B B>C A>C:*.py",
    **{f"unusual_role_name[{name}]": f"targets>{name}" for name in ("?", "#", "/role", "../role", "a/../../role")},
}
SEARCHED = {
    "no delegations": ("targetfile", "targets"),
    "targetpath matches wildcard": ("README.md", "A"),
    "targetpath with separators x": ("releases/x/x_v1", "C"),
    "targetpath with separators y": ("releases/y/y_v1.zip", "D"),
    "targetpath is not delegated by all roles in the chain": ("releases/z/z_v1.zip", "D"),
}
TREE = "targets>A:*.md targets>B:releases/*/* B>C:releases/x/* B>D:releases/y/*.zip"


def delegate(r: Repository, graph: str) -> None:
    """Roles as a graph says, all signed by one key, the last word of targets being ``rollout``."""
    signer = KEYS["a"]
    for edge in graph.split():
        delegator, _, rest = edge.partition(">")
        name, _, path = rest.partition(":")
        role = DelegatedRole(name.rstrip("!"), [signer.public_key.keyid], 1, name.endswith("!"), paths=[path or "*"])
        if role.name not in r.signed:
            r.signed[role.name], r.signers[role.name] = Targets(expires=LATER), [signer]
        by = r.signed[delegator]
        by.delegations = by.delegations or Delegations({}, {})
        by.delegations.keys[signer.public_key.keyid] = signer.public_key
        others = {key: one for key, one in by.delegations.roles.items() if key != "rollout"}
        by.delegations.roles = {**others, role.name: role, **by.delegations.roles}
    r.publish("targets", *(role for role in r.signed if role not in (*TOP, "rollout")))


@pytest.mark.parametrize("case", GRAPHS)
def test_graph_traversal(case: str, repository: Repository, client: Client) -> None:
    """A role that a fleet does not have is not asked for, whatever its name, and nothing of it is written: what was
    taken before stays."""
    client.refresh()
    delegate(repository, GRAPHS[case])
    before = {*client.folder.parent.rglob("*")}
    client.refuse("missing")
    known = {"3.root.json", "2.root.json", "timestamp.json", "2.snapshot.json", "2.targets.json", "1.rollout.json"}
    assert {*repository.asked} <= known
    assert {*client.folder.parent.rglob("*")} == before


@pytest.mark.parametrize("case", SEARCHED)
def test_targetfile_search(case: str, repository: Repository, client: Client) -> None:
    """A file is fetched that operators have signed themselves; one of another role is not."""
    path, role = SEARCHED[case]
    delegate(repository, TREE)
    repository.add(path, b"content", role)
    repository.publish(role)
    client.refresh()
    if role == "targets":
        assert client.download(path, b"content") == b"content"
        return
    with pytest.raises(TrustRefused) as caught:
        client.download(path, b"content")
    assert caught.value.kind in ("missing", "target")
