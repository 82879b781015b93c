"""The part of JSON Schema (draft 2020-12) that the description of a server uses, by its definition."""

from collections.abc import Iterator, Mapping

TYPES = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}
ANNOTATIONS = {"title", "description", "default"}  # keywords that say nothing about validity


def resolve(document: Mapping, reference: str) -> object:
    """What a local reference (`#/a/b`) points to. Raises KeyError."""
    assert reference.startswith("#/"), reference
    found: object = document
    for name in reference[2:].split("/"):
        found = found[name.replace("~1", "/").replace("~0", "~")]
    return found


def references(content: object) -> Iterator[str]:
    """All references within a document."""
    if isinstance(content, dict):
        for name, value in content.items():
            if name == "$ref":
                yield value
            else:
                yield from references(value)
    elif isinstance(content, list):
        for value in content:
            yield from references(value)


def faults(value: object, schema: Mapping, document: Mapping, place: str = "$") -> list[str]:
    """The ways in which a value breaks a schema; none for a valid one. An unknown keyword is an error."""
    found: list[str] = []
    for keyword, wanted in schema.items():
        if keyword in ANNOTATIONS:
            continue
        if keyword == "$ref":
            found += faults(value, resolve(document, wanted), document, place)
        elif keyword == "type":
            is_number = not isinstance(value, bool) or wanted == "boolean"
            found += [] if isinstance(value, TYPES[wanted]) and is_number else [f"{place} is no {wanted}"]
        elif keyword == "enum":
            found += [] if value in wanted else [f"{place} is none of {wanted}"]
        elif keyword == "minimum":
            found += [f"{place} is below {wanted}"] if isinstance(value, int | float) and value < wanted else []
        elif keyword == "maximum":
            found += [f"{place} is above {wanted}"] if isinstance(value, int | float) and value > wanted else []
        elif keyword == "anyOf":
            fits = any(not faults(value, one, document, place) for one in wanted)
            found += [] if fits else [f"{place} fits none of {len(wanted)} schemas"]
        elif keyword == "required":
            missing = [name for name in wanted if isinstance(value, dict) and name not in value]
            found += [f"{place} lacks {name}" for name in missing]
        elif keyword == "properties":
            for name in wanted.keys() & (value.keys() if isinstance(value, dict) else ()):
                found += faults(value[name], wanted[name], document, f"{place}.{name}")
        elif keyword == "additionalProperties" and wanted is False:
            others = value.keys() - schema.get("properties", {}).keys() if isinstance(value, dict) else ()
            found += [f"{place} has {name}, which is not known" for name in others]
        elif keyword == "items":
            for i, item in enumerate(value if isinstance(value, list) else ()):
                found += faults(item, wanted, document, f"{place}[{i}]")
        else:
            raise NotImplementedError(f"keyword {keyword} of JSON Schema")
    return found
