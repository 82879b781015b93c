"""`GET /openapi.json` of `nmt serve` describes what the server does: routes, requests, answers, errors."""

import pytest
from conftest import WORDS, small_model
from exchange import events_of
from schemas import faults, references, resolve
from servers import Server, serving

LINE = " ".join(WORDS[:3])
KEY = {"x_api_key": "secret"}
SMALL = {"d_model": 16, "d_ff": 32, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
DETAILS = {"n_best": 2, "word_scores": True, "alignment": True}
BODIES = [
    {"text": LINE},
    {"text": [LINE, "zzz", " "], "model": None, "source": "en"},
    {"text": [{"text": LINE, "avoid": [WORDS[0]]}, LINE], **DETAILS},
    {"text": {"text": "", "prefix": WORDS[0]}, **DETAILS},  # a line that cannot be translated
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("openapi")


@pytest.fixture(scope="module")
def server(folder):
    (folder / "keys").write_text("secret\nrare\n")
    flags = ["--keys", folder / "keys", "--max-body=0.01", "--max-texts=5", "--requests-per-minute=60"]
    with serving(folder, "--model", small_model(folder / "m", **SMALL), *flags) as made:
        yield made


@pytest.fixture(scope="module")
def document(server):
    status, content, headers = server.ask("GET", "/openapi.json")
    assert status == 200 and headers["content-type"] == "application/json"
    return content


def schema_of(document: dict, path: str, method: str, status: int, media_type: str = "application/json") -> dict:
    """The schema of an answer; its media type must be described."""
    answer = document["paths"][path][method]["responses"][str(status)]
    answer = resolve(document, answer["$ref"]) if "$ref" in answer else answer
    return answer["content"][media_type]["schema"]


def check(document: dict, server: Server, method: str, path: str, body: object = None, **headers: str) -> int:
    """Send a request, compare the answer with its description, and return its status."""
    status, content, found = server.ask(method, path, body, **headers)
    media_type = found["content-type"].removesuffix("; charset=utf-8")
    schema = schema_of(document, path.partition("?")[0], method.lower(), status, media_type)
    assert faults(content.decode() if isinstance(content, bytes) else content, schema, document) == []
    operation = document["paths"][path.partition("?")[0]][method.lower()]["responses"][str(status)]
    names = (resolve(document, operation["$ref"]) if "$ref" in operation else operation)["headers"]
    assert {name for name in names if name.lower() not in found} == set()
    return status


def test_every_reference_resolves_and_every_schema_is_used(document):
    used = set(references(document))
    for reference in used:
        resolve(document, reference)
    assert {f"#/components/schemas/{name}" for name in document["components"]["schemas"]} <= used
    assert document["openapi"].startswith("3.1.") and set(document["info"]) >= {"title", "version"}


def test_every_route_of_the_nmt_protocol_is_described_with_its_methods(document, folder):
    from nmt import registry
    from nmt.extensions.serve.models import Models
    from nmt.extensions.serve.options import ServeOptions
    from nmt.extensions.serve.protocols.own import NmtProtocol
    from nmt.extensions.serve.service import Service

    options = ServeOptions(model=(str(folder / "m"),))
    service = Service(options, Models(options, registry.choose("decoder", "beam", {})))
    routes = NmtProtocol(options, service).routes()
    methods_of = {route.path: {method.lower() for method in route.methods - {"HEAD"}} for route in routes}
    assert {path: set(methods) for path, methods in document["paths"].items()} == methods_of
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    schemes = document["components"]["securitySchemes"].keys()
    assert all(name in schemes for operation in operations for way in operation.get("security", []) for name in way)


@pytest.mark.parametrize("body", BODIES)
def test_bodies_and_their_answers_fit_their_schemas(document, server, body):
    asked = document["paths"]["/v1/translate"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert faults(body, asked, document) == []
    assert check(document, server, "POST", "/v1/translate", body, **KEY) == 200


def test_events_of_a_stream_fit_their_schemas(document, server):
    status, content, headers = server.ask(
        "POST", "/v1/translate", {"text": [LINE, ""], **DETAILS, "stream": True}, **KEY
    )
    assert status == 200 and headers["content-type"].startswith("text/event-stream")
    schema = schema_of(document, "/v1/translate", "post", 200, "text/event-stream")
    of_name = dict(zip(["translation", "end", "error"], schema["anyOf"], strict=True))
    found = events_of(content)
    assert [name for name, _ in found] == ["translation", "translation", "end"]
    assert [faults(data, of_name[name], document) for name, data in found] == [[], [], []]
    assert faults(found[0][1], of_name["end"], document) and faults(found[2][1], of_name["translation"], document)
    meaning = document["paths"]["/v1/translate"]["post"]["responses"]["200"]["description"]
    assert all(f"`{name}`: {one['$ref'].rpartition('/')[2]}" in meaning for name, one in of_name.items())


@pytest.mark.parametrize("path", ["/v1/directions", "/health", "/metrics", "/openapi.json"])
def test_answers_without_a_body_fit_their_schemas(document, server, path):
    assert check(document, server, "GET", path, **KEY) == 200


def test_described_api_keys_are_accepted_and_no_others_are_needed(document, server):
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            status, _, _ = server.ask(method.upper(), path, {"text": LINE} if "requestBody" in operation else None)
            assert status == (403 if operation.get("security") else 200)
    schemes = document["components"]["securitySchemes"]
    assert (schemes["bearer"]["scheme"], schemes["header"]["name"]) == ("bearer", "X-API-Key")
    assert server.ask("GET", "/v1/directions", authorization="Bearer secret")[0] == 200
    assert server.ask("GET", f"/v1/directions?{schemes['query']['name']}=secret")[0] == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        ({"text": 5}, 400),
        ({"text": LINE, "n_best": 0}, 400),
        ({"text": LINE, "n_best": 101}, 400),
        ({"text": LINE, "colour": "red"}, 400),
        ({"text": [LINE, {"text": LINE, "phrases": "a"}]}, 400),
        ({}, 400),
        ({"text": ["a"] * 6}, 413),
        ({"text": "a" * 20_000}, 413),
    ],
)
def test_errors_fit_their_schema_and_rejected_bodies_do_not(document, server, body, status):
    assert check(document, server, "POST", "/v1/translate", body, **KEY) == status
    schema = document["paths"]["/v1/translate"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert status == 413 or faults(body, schema, document)


def test_errors_of_keys_rates_paths_and_models_fit_their_schema(document, server, folder):
    assert check(document, server, "POST", "/v1/translate", {"text": LINE}) == 403
    while (status := check(document, server, "GET", "/v1/directions", x_api_key="rare")) == 200:
        pass
    assert status == 429
    problem = schema_of(document, "/v1/translate", "post", 400)
    for method, path, expected in (("GET", "/nothing", 404), ("DELETE", "/v1/translate", 405)):
        status, content, _ = server.ask(method, path)
        assert (status, faults(content, problem, document)) == (expected, [])
        assert content["error"]["status"] == expected
    (folder / "m").rename(folder / "away")
    try:
        status = check(document, server, "POST", "/v1/translate", {"text": {"text": LINE, "phrases": ["a"]}}, **KEY)
    finally:
        (folder / "away").rename(folder / "m")
    assert status == 503
