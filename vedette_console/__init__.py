"""The console of a region: one page where it is seen and steered, and an HTTP API that does all that the page does.

Whatever the console shows, it reads from the region's tables and from what agents and the controller publish; whatever
it changes goes through ``/api/v1``, by one who may, and stands in its audit log. A console that is down stops neither
the landing nor a roll-out: nothing imports this package but ``vedette region console``.

In reading order: ``settings`` (what an operator chooses), ``app`` (how the parts are put together), ``web`` (what each
route uses), then the rooms: ``security`` (who someone is, and what they may), ``store`` (what the console keeps of its
own), ``data`` (the tables), ``fleet`` (agents, roll-outs, hunts, rules), ``views`` (API and pages, a module a noun),
``pages`` (what HTML is made of). ``hub`` carries news to open pages, ``streams`` long answers; ``server`` listens.
"""
