"""What ``own`` imports."""


def spelled(text):
    return None if text is None else "-".join(text)
