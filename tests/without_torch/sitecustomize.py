"""Hides torch from every Python process whose PYTHONPATH starts with this folder, as if it were not installed."""

from importlib.machinery import PathFinder

find_spec = PathFinder.find_spec


def find_other_spec(cls, name, path=None, target=None):
    """The finder of installed modules, except torch."""
    return None if name == "torch" else find_spec(name, path, target)


PathFinder.find_spec = classmethod(find_other_spec)
