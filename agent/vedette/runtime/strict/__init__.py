"""Rule sets in strict isolation: each evaluated in a process of its own, which reads the raw log beside the writer.

What fails there or costs too much touches no other set; the agent commits what the process sends, exactly once.

``watched.py`` leaves out what an evaluation died of before, in such a process and, after a crash, in the agent itself.
"""
