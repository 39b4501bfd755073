"""The generated description of the API."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import tenon_engine

Serve = Callable[..., Any]


def described(rig: Any) -> Any:
    return rig.client.get("/openapi.json").json()


def test_every_route_is_described_with_its_methods(serve: Serve) -> None:
    rig = serve()
    served = {
        route.path: {method.lower() for method in route.methods} - {"head"}
        for route in rig.app.routes
        if route.path != "/openapi.json"
    }
    assert {path: set(methods) for path, methods in described(rig)["paths"].items()} == served


def test_every_form_that_is_named_is_there(serve: Serve) -> None:
    document = described(serve())
    names = json.dumps(document).split('"#/components/schemas/')[1:]
    assert {name.partition('"')[0] for name in names} == set(document["components"]["schemas"])


def test_the_native_request_is_described_with_its_limits(serve: Serve) -> None:
    document = described(serve())
    assert document["info"]["version"] == tenon_engine.__version__
    form = document["components"]["schemas"]["FillForm"]
    assert form["required"] == ["segments"]
    assert form["additionalProperties"] is False
    assert form["properties"]["candidates"] == {
        "title": "Candidates",
        "type": "integer",
        "default": 1,
        "minimum": 1,
        "maximum": 16,
    }


def test_a_token_is_described_where_one_is_wanted(serve: Serve) -> None:
    assert described(serve())["security"] == []
    document = described(serve(token="a-token-of-ours"))
    assert document["security"] == [{"token": []}]
    assert document["components"]["securitySchemes"] == {"token": {"type": "http", "scheme": "bearer"}}
