"""The formats of messages that are neither a program's words nor plain ``key=value``."""
