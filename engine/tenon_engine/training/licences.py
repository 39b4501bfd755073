"""Which licence a package states, as an SPDX expression, and whether we may train on it.

Where nothing certain is stated the answer is "", which is not permissive. Pure functions of text.
"""

from __future__ import annotations

import json
import re
from email.message import Message

OWN = "own"  # the user's own code, for the user's own adapter
PERMISSIVE = frozenset(
    {
        *("0BSD", "AFL-2.1", "Apache-2.0", "BSD-1-Clause", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0"),
        *("BlueOak-1.0.0", "CC0-1.0", "CNRI-Python", "HPND", "ISC", "MIT", "MIT-0", "MIT-CMU", "NCSA"),
        *(
            "PSF-2.0",
            "PostgreSQL",
            "Python-2.0",
            "Unicode-3.0",
            "Unlicense",
            "W3C",
            "WTFPL",
            "ZPL-2.1",
            "Zlib",
        ),
        OWN,
    }
)
_PERMISSIVE_EXCEPTIONS = frozenset({"LLVM-exception"})  # they only add permissions

_CLASSIFIER = "License :: "
_UNKNOWN, _COPYLEFT, _RESTRICTED = "LicenseRef-unknown", "LicenseRef-copyleft", "LicenseRef-restricted"
_OF_CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "Boost Software License 1.0 (BSL-1.0)": "BSL-1.0",
    "CC0 1.0 Universal (CC0 1.0) Public Domain Dedication": "CC0-1.0",
    "Historical Permission Notice and Disclaimer (HPND)": "HPND",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "MIT No Attribution License (MIT-0)": "MIT-0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
    "Zero-Clause BSD (0BSD)": "0BSD",
    "Zope Public License": "ZPL-2.1",
    "zlib/libpng License": "Zlib",
}
# Of names and of whole texts; the first that matches counts, so that what forbids stands before what permits.
_OF_TEXTS = tuple(
    (re.compile(pattern, re.IGNORECASE), name)
    for pattern, name in (
        (r"\bA?L?GPL|GNU .{0,20}General Public|Mozilla Public|\bMPL|\bEUPL|Eclipse Public|\bCDDL", _COPYLEFT),
        (
            r"non-?commercial|Commons Clause|Business Source|Elastic License|Server Side Public|proprietary",
            _RESTRICTED,
        ),
        (
            r"\bApache(?: Software)?(?: License)?\W*(?:v|version )?\W*2|^Apache(?: Software)? License$",
            "Apache-2.0",
        ),
        (r"^(?:the |expat )?MIT(?: license)?\b|Permission is hereby granted, free of charge, to any", "MIT"),
        (r"\b(?:3-clause|new|modified) BSD|\bBSD[ -]3|Neither the name", "BSD-3-Clause"),
        (
            r"\b(?:2-clause|simplified) BSD|\bBSD[ -]2|^Redistribution and use in source and binary",
            "BSD-2-Clause",
        ),
        (r"^(?:the )?BSD(?:[ -]license)?$", "BSD-3-Clause"),
        (r"^(?:the )?ISC\b|Permission to use, copy, modify, and/or distribute this software for any", "ISC"),
        (r"^(?:PSF|Python Software Foundation)\b", "PSF-2.0"),
        (r"Unlicense|This is free and unencumbered software", "Unlicense"),
    )
)
_NAME_OR_SIGN = re.compile(r"[()]|[\w.+-]+")


def is_permissive(expression: str) -> bool:
    """Whether an SPDX expression leaves the choice of permissive licences alone: all of an AND, one of an OR."""
    signs = _NAME_OR_SIGN.findall(expression)
    try:
        verdict = _any_of(signs)
    except (IndexError, RecursionError):  # it ends where a licence is expected, or is no expression at all
        return False
    return verdict and not signs


def of_metadata(metadata: Message) -> str:
    """Of a Python package's METADATA or PKG-INFO: the expression, else the classifiers, else the text."""
    expression = str(metadata.get("License-Expression", "")).strip()
    if expression:
        return expression
    classifiers = [str(line).strip() for line in metadata.get_all("Classifier", ())]
    names = [line.rpartition(" :: ")[2] for line in classifiers if line.startswith(_CLASSIFIER)]
    named = {_OF_CLASSIFIERS.get(name, _UNKNOWN) for name in names if not name.lower().endswith(" approved")}
    if named:
        return " AND ".join(sorted(named))
    return of_text(str(metadata.get("License", "")))


def of_package_json(content: str) -> str:
    """Of an npm package's package.json."""
    try:
        stated = json.loads(content).get("license", "")
    except (ValueError, AttributeError, RecursionError):
        return ""
    return stated.strip() if isinstance(stated, str) else ""


def of_text(text: str) -> str:
    """Of a licence's name as people write it, or of its whole text; "" when it is none of those we know."""
    plain = " ".join(text.split())
    if plain in PERMISSIVE:
        return plain
    return next((name for pattern, name in _OF_TEXTS if pattern.search(plain)), "")


def _any_of(signs: list[str]) -> bool:
    verdicts = [_all_of(signs)]
    while signs and signs[0].upper() == "OR":
        signs.pop(0)
        verdicts.append(_all_of(signs))
    return any(verdicts)


def _all_of(signs: list[str]) -> bool:
    verdicts = [_one(signs)]
    while signs and signs[0].upper() == "AND":
        signs.pop(0)
        verdicts.append(_one(signs))
    return all(verdicts)


def _one(signs: list[str]) -> bool:
    sign = signs.pop(0)
    if sign == "(":
        verdict = _any_of(signs)
        return signs.pop(0) == ")" and verdict
    verdict = sign in PERMISSIVE
    if signs and signs[0].upper() == "WITH":
        del signs[0]
        verdict = signs.pop(0) in _PERMISSIVE_EXCEPTIONS and verdict
    return verdict
