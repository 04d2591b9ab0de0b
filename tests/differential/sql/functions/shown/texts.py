"""Python's type and value of an argument."""


def text_of(value):
    if isinstance(value, list):
        return "[" + ", ".join(map(text_of, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(sorted(f"{text_of(key)}: {text_of(one)}" for key, one in value.items())) + "}"
    return f"{type(value).__name__} {value!r}"
