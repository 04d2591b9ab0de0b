"""A second made-up region, written from what others have published, without a look at what is to find it.

Sixty sites in two fleets (plants, offices, data centres, cloud tenants) for fourteen days with about 300,000 alerts:

* ``catalogue`` has thirty classes of intrusion as tables of steps, each with its source: campaigns of ATT&CK,
  advisories of CISA, cases of The DFIR Report, incident reports of those whom it happened to. ``attacks`` plays a third
  of them in a region, so that three seeds in a row play all; three of four become attacks in the last week.
* ``decoys`` look like attacks and are none; sites that fall dark are none, either, and yet worth a line.
* ``background`` is what goes on every day: rules' noise by site and host with heavy tails, hours and weekdays of people
  and of machines, the internet's scanners with their folds.
* ``rules.csv`` holds the rules' ids, titles, levels and tags as SigmaHQ published them (by their authors, under the
  Detection Rule License 1.1), and of rules/sigma.

What makes an attack one is its ``moment``: when somebody who read every alert would say so; before it, it could be
anything. In every third region three thin days of a pilot site come before the roll-out.
"""

from __future__ import annotations

from pathlib import Path

from tests.spark_jobs.playbooks.attacks import plan, weigh
from tests.spark_jobs.playbooks.background import Everyday
from tests.spark_jobs.playbooks.catalogue import PLAYBOOKS
from tests.spark_jobs.playbooks.decoys import Decoys, outages
from tests.spark_jobs.playbooks.world import RULES, Attack, Author, Decoy, Outage, Size, Truth

__all__ = ["PLAYBOOKS", "Attack", "Decoy", "Outage", "Size", "Truth", "make"]

SHARE = 3
"""One of so many playbooks is played in a region."""


def make(folder: Path, seed: int, size: Size = Size()) -> Truth:  # noqa: B008
    """Write ``folder/landing`` and ``folder/lookups``; what was planted. The same seed and size give the same bytes."""
    author = Author(seed, size)
    if seed % SHARE == 1:
        # A pilot of one site for three days before everything begins: their days are among the fourteen.
        pilot = author.draw.choice(author.sites)
        author.begins = {site.number: 72.0 for site in author.sites if site is not pilot}
    outages(author)
    attacks = plan(author, seed % SHARE, SHARE)
    everyday = Everyday(author)
    homes = {place for attack in attacks for place in attack.sites}
    play = Decoys(author, everyday, homes | {outage.site for outage in author.outages})
    decoys = play.write()
    everyday.write(size.alerts - len(author.happened))
    landed = author.write(folder, play.intel)
    attacks, decoys = weigh(author, attacks, decoys)
    rules = {rule.id: rule.title for rule in RULES.values()}
    return Truth(seed, author.start, author.at(author.hours), attacks, decoys, list(author.outages), landed, rules)
