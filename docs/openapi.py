"""A hook of mkdocs: where a page says so, the HTTP interface and the settings of the service are written from the code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

OPENAPI, SETTINGS = "<!-- openapi -->", "<!-- settings -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the reference where the mark is."""
    if OPENAPI in markdown:
        markdown = markdown.replace(OPENAPI, reference(_document()))
    return markdown.replace(SETTINGS, settings()) if SETTINGS in markdown else markdown


def settings() -> str:
    """The settings of the service, with their defaults."""
    from gnndelete.service.console import duration
    from gnndelete.service.home import Settings

    said = dict(re.findall(r"^        (\w+): (.*)$", Settings.__doc__ or "", re.MULTILINE))
    lines = ["| setting | default | |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        if name in said:
            value = field.default
            words = f" ({duration(value)})" if isinstance(value, float) and value >= 60 and name != "rate" else ""
            lines.append(f"| `{name}` | {json.dumps(value)}{words} | {said[name].replace('``', '`')} |")
    return "\n".join(lines)


def _document() -> dict[str, Any]:
    from gnndelete.service.api import create_app

    nowhere = SimpleNamespace(access=None, keys=SimpleNamespace(tombstones=b""))
    return create_app(nowhere).openapi()  # type: ignore[arg-type]


def reference(document: dict[str, Any]) -> str:
    """The whole document as Markdown."""
    return "\n".join(_lines(document))


def _lines(document: dict[str, Any]) -> Iterator[str]:
    schemas = document["components"]["schemas"]
    used = ["Problem"]
    for tag in document["tags"]:
        yield f"## {tag['name'].capitalize()}\n\n{tag['description']}\n"
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if tag["name"] in operation["tags"]:
                    yield from _operation(path, method, operation, schemas, used)
    yield "## Bodies\n\nAnswers may grow fields; read those that you know.\n"
    for name in used:  # grows while it is read
        yield from _schema(name, schemas[name], used)
    yield "## Errors\n\n| status | meaning |\n|---|---|"
    yield from (f"| {status} | {each['description']} |" for status, each in document["components"]["responses"].items())
    yield ""


def _operation(
    path: str, method: str, operation: dict[str, Any], schemas: dict[str, Any], used: list[str]
) -> Iterator[str]:
    yield f"### {method.upper()} {path} {{ #op-{operation['operationId']} }}\n\n{operation['description'].replace('``', '`')}\n"
    asked = [each for each in operation.get("parameters", []) if each["in"] != "path"]
    if asked:
        yield "| parameter | type | |\n|---|---|---|"
        for each in asked:
            where = " (header)" if each["in"] == "header" else ""
            yield f"| `{each['name']}`{where} | {_type(each['schema'], used)} | {each.get('description', '')} |"
        yield ""
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        yield f"Body: {_type(schema, used)}\n"
        example = schemas[_name(schema)].get("examples")
        if example:
            yield f"```json\n{json.dumps(example[0], indent=2)}\n```\n"
    good = [
        f"{status} with {' or '.join(_type(each.get('schema', {}), used) or kind for kind, each in answer['content'].items())}"
        for status, answer in sorted(operation["responses"].items())
        if status.startswith("2")
    ]
    errors = [status for status in sorted(operation["responses"]) if not status.startswith("2")]
    yield f"Answers {', '.join(good)}. [Errors](#errors): {', '.join(errors)}.\n"


def _schema(name: str, schema: dict[str, Any], used: list[str]) -> Iterator[str]:
    said = schema.get("description", "").partition("\n")[0]
    yield f"### {name} {{ #{name} }}\n\n{said}\n"
    yield "| field | type | |\n|---|---|---|"
    for field, each in schema.get("properties", {}).items():
        said = each.get("description", "")
        example = f" Such as `{json.dumps(each['examples'][0])}`." if each.get("examples") else ""
        yield f"| `{field}` | {_type(each, used)} | {said}{example} |"
    yield ""


def _name(schema: dict[str, Any]) -> str:
    return str(schema["$ref"].rpartition("/")[2])


def _type(schema: dict[str, Any], used: list[str]) -> str:
    """The type of a value in a few words, with links to the bodies it is made of."""
    if "$ref" in schema:
        name = _name(schema)
        if name not in used:
            used.append(name)
        return f"[{name}](#{name})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(each, used) for each in schema["anyOf"] if each.get("type") != "null"))
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}), used) or 'values'}"
    return {
        "string": "text",
        "integer": "integer",
        "number": "number",
        "boolean": "true or false",
        "object": "object",
    }.get(schema.get("type", ""), "")
