"""Which licence a package states, and which of them we may train on."""

from __future__ import annotations

import email

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenon_engine.training import licences


@pytest.mark.parametrize(
    ("expression", "verdict"),
    [
        ("MIT", True),
        ("MIT OR GPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", False),
        ("(MIT AND (ISC OR AGPL-3.0-only))", True),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("GPL-3.0-or-later WITH GCC-exception-3.1", False),
        ("BSD-3-Clause AND 0BSD AND MIT AND Zlib AND CC0-1.0", True),
        ("AGPL-3.0", False),
        ("LGPL-2.1-only", False),
        ("MPL-2.0", False),
        ("SEE LICENSE IN LICENSE.txt", False),
        ("UNLICENSED", False),
        ("", False),
        ("(MIT", False),
        ("MIT)", False),
        ("MIT OR", False),
        ("(" * 10_000, False),
    ],
)
def test_a_choice_or_a_union_of_permissive_licences_is_permissive(expression: str, verdict: bool) -> None:
    assert licences.is_permissive(expression) is verdict


@pytest.mark.parametrize(
    ("metadata", "expression"),
    [
        ("License-Expression: MIT\nClassifier: License :: OSI Approved :: BSD License", "MIT"),
        ("Classifier: License :: OSI Approved :: Apache Software License\nLicense: x", "Apache-2.0"),
        ("Classifier: License :: OSI Approved\nLicense: BSD-3-Clause", "BSD-3-Clause"),
        ("License: Apache License, Version 2.0", "Apache-2.0"),
        ("License: GNU LGPL v2.1", "LicenseRef-copyleft"),
        ("License: Copyright (c) 2020\n  Permission is hereby granted, free of charge, to any person", "MIT"),
        ("License: Proprietary", "LicenseRef-restricted"),
        ("Name: x", ""),
    ],
)
def test_a_python_package_says_it_in_one_of_three_ways(metadata: str, expression: str) -> None:
    assert licences.of_metadata(email.message_from_string(metadata)) == expression


def test_every_classifier_counts() -> None:
    lines = ["MIT License", "GNU General Public License v3 (GPLv3)"]
    text = "".join(f"Classifier: License :: OSI Approved :: {line}\n" for line in lines)
    assert not licences.is_permissive(licences.of_metadata(email.message_from_string(text)))


@pytest.mark.parametrize(
    ("content", "expression"),
    [('{"license": "ISC"}', "ISC"), ('{"license": {"type": "MIT"}}', ""), ("[]", ""), ("{", ""), ("{}", "")],
)
def test_an_npm_package_says_it_in_its_package_json(content: str, expression: str) -> None:
    assert licences.of_package_json(content) == expression


@given(st.text(alphabet="()MITANDOR WGPL-3.", max_size=40))
def test_no_expression_is_too_odd_for_a_verdict(expression: str) -> None:
    assert licences.is_permissive(expression) in (True, False)
