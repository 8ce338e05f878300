"""Enough of JSON Schema to check replies against docs/openapi.json. Knows every keyword that page uses, and says so when it meets another."""
import re

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
NOTES = {"$schema", "title", "description", "default"}


def is_type(value, name):
    if name in ("number", "integer"):
        return isinstance(value, (int, float) if name == "number" else int) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


def check(value, schema, document, where="reply"):
    """Yields what is wrong."""
    if "$ref" in schema:
        target = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        yield from check(value, target, document, where)
        return
    for keyword, argument in schema.items():
        yield from KEYWORDS[keyword](value, argument, schema, document, where) if keyword not in NOTES else ()


def check_type(value, names, _schema, _document, where):
    if not any(is_type(value, name) for name in ([names] if isinstance(names, str) else names)):
        yield f"{where}: {value!r} is not {names}"


def check_enum(value, allowed, _schema, _document, where):
    if value not in allowed:
        yield f"{where}: {value!r} is none of {allowed}"


def check_pattern(value, pattern, _schema, _document, where):
    exact = pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern  # Python's $ lets a line feed follow
    if isinstance(value, str) and not re.search(exact, value):
        yield f"{where}: {value!r} does not match {pattern}"


def check_length(least):
    def check_it(value, length, _schema, _document, where):
        if isinstance(value, (str, list)) and (len(value) < length if least else len(value) > length):
            yield f"{where}: its length is {len(value)}, not at {'least' if least else 'most'} {length}"
    return check_it


def check_minimum(value, minimum, _schema, _document, where):
    if is_type(value, "number") and value < minimum:
        yield f"{where}: {value} is below {minimum}"


def check_maximum(value, maximum, _schema, _document, where):
    if is_type(value, "number") and value > maximum:
        yield f"{where}: {value} is above {maximum}"


def check_format(value, name, _schema, _document, where):
    assert name == "date-time", name
    if isinstance(value, str) and not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", value):
        yield f"{where}: {value!r} is not a time"


def check_properties(value, properties, _schema, document, where):
    if isinstance(value, dict):
        for name, schema in properties.items():
            if name in value:
                yield from check(value[name], schema, document, f"{where}.{name}")


def check_required(value, names, _schema, _document, where):
    if isinstance(value, dict):
        yield from (f"{where}: no {name}" for name in names if name not in value)


def check_additional(value, argument, schema, document, where):
    if not isinstance(value, dict) or argument is True:
        return
    for name in value.keys() - schema.get("properties", {}).keys():
        if argument is False:
            yield f"{where}: unknown member {name}"
        else:
            yield from check(value[name], argument, document, f"{where}.{name}")


def check_items(value, schema, _parent, document, where):
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from check(item, schema, document, f"{where}[{index}]")


def check_min_items(value, count, _schema, _document, where):
    if isinstance(value, list) and len(value) < count:
        yield f"{where}: fewer than {count} items"


def check_one_of(value, schemas, _schema, document, where):
    fitting = [s for s in schemas if not list(check(value, s, document, where))]
    if len(fitting) != 1:
        yield f"{where}: fits {len(fitting)} of {len(schemas)} forms"


KEYWORDS = {"type": check_type, "enum": check_enum, "pattern": check_pattern, "minimum": check_minimum, "maximum": check_maximum, "format": check_format,
            "properties": check_properties, "required": check_required, "additionalProperties": check_additional, "items": check_items,
            "minItems": check_min_items, "maxItems": check_length(least=False), "minLength": check_length(least=True),
            "maxLength": check_length(least=False), "oneOf": check_one_of}
