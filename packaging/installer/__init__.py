"""The second half of install.sh, by the Python of a release that is known to run on this host.

Runs as ``vedetted -X utf8 -I -S -B RELEASE/installer ACTION KEY=VALUE…``, in the place of the shell and under its lock.
It must work before there is a configuration, and beside an agent that does not start: the standard library alone is
imported, nothing of ``packages/``.

Who runs what is the guarantee of the way back:

    install            the new release, which install.sh has tried
    rollback           the release that is gone back to, tried likewise
    watch, supervise   the release before, as long as the new one has not confirmed itself
    staged             the release in force

Whatever fails in ``install`` and ``rollback`` is undone by the same process (``changes.py``); a process that is killed
leaves the old installation or the new one at work, and the same run again mends it.
"""
