"""Python snippets and how risky they look."""

import pytest

from ringfence.policy.risk.assess import assess
from ringfence.policy.risk.patterns import python as rows
from ringfence.values.risk import Risk

pytestmark = pytest.mark.req("E2")

SAFE = [
    "",
    "# nothing but a comment",
    "print('hello')",
    "x = 1\ny = x + 2\nprint(f'{y:>10} {x!r}')",
    "def f(n: int) -> int:\n    return n if n < 2 else f(n - 1) + f(n - 2)\nprint(f(10))",
    "import math\nprint(math.sqrt(2))",
    "from math import *\nprint(pi)",
    "import json\nprint(json.dumps({'a': [1, 2]}))",
    "from collections import Counter as C\nprint(C('hello').most_common(1))",
    "import collections.abc\nprint(isinstance([], collections.abc.Sized))",
    "import datetime as dt\nprint(dt.datetime(2020, 1, 1).isoformat())",
    "import re\nprint(re.findall(r'\\d+', 'a1b22'))",
    "import urllib.parse\nprint(urllib.parse.quote('a b'))",
    "import random\nrandom.seed(1)\nprint(random.randint(1, 6))",
    "class A:\n    def __init__(self, x):\n        super().__init__()\n        self._x = x\n"
    "    def __repr__(self):\n        return f'A({self._x})'\nprint(A(3), A.__name__)",
    "from enum import Enum\nclass E(Enum):\n    A = 1\nprint(E.A.value)",
    "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    print(error)",
    "print('{} {x}'.format(1, x=2))",
    "print(getattr(3, 'real'), hasattr(3, 'imag'), type(3))",
    "if __name__ == '__main__':\n    print(sorted({3, 1, 2}, key=lambda n: -n))",
    "match [1, 2]:\n    case [a, *rest]:\n        print(a, rest)",
    "import sys\nsys.stdout.write('x')\nsys.exit(0)",
    "# -*- coding: utf-8 -*-\nprint('é')",
    "total = 0\nfor n in range(10):\n    total += n\nelse:\n    print(total)",
    "print('import os; os.system(\"rm -rf /\")')",
]

RISKY = [
    # looks around, or asks
    ("import os", Risk.LOW),
    ("import os\nprint(os.getcwd(), os.path.exists('a'))", Risk.LOW),
    ("open('data.csv').read()", Risk.LOW),
    ("open('data.csv', encoding='utf-8')", Risk.LOW),
    ("name = input()", Risk.LOW),
    ("import threading", Risk.LOW),
    ("x._private", Risk.LOW),
    ("'{0.real}'.format(1)", Risk.LOW),
    ("template.format(x)", Risk.LOW),
    ("from dataclasses import dataclass", Risk.LOW),
    # changes files, or could
    ("open('out.txt', 'w').write('x')", Risk.MEDIUM),
    ("open('out.txt', mode='a')", Risk.MEDIUM),
    ("open('out.txt', mode)", Risk.MEDIUM),
    ("open(*args)", Risk.MEDIUM),
    ("f = open", Risk.MEDIUM),
    ("import os\nos.environ['HOME']", Risk.MEDIUM),
    ("import os\nos.mkdir('a')", Risk.MEDIUM),
    ("import pandas as pd\npd.DataFrame({'a': [1]}).describe()", Risk.MEDIUM),
    ("import numpy as np\nnp.zeros(3).sum()", Risk.MEDIUM),
    ("from pathlib import Path\nPath('a').write_text('x')", Risk.MEDIUM),
    ("import shutil", Risk.MEDIUM),
    ("type('X', (), {})", Risk.MEDIUM),
    ("x.__class__", Risk.MEDIUM),
    # removes, talks, runs unseen code, is unknown
    ("import os\nos.remove('a')", Risk.HIGH),
    ("import shutil\nshutil.rmtree('a')", Risk.HIGH),
    ("import socket", Risk.HIGH),
    ("import requests\nrequests.get('https://example.com')", Risk.HIGH),
    ("from urllib.request import urlopen", Risk.HIGH),
    ("import pickle\npickle.loads(b'')", Risk.HIGH),
    ("eval('1 + 1')", Risk.HIGH),
    ("open('/etc/passwd')", Risk.HIGH),
    ("open('../secret')", Risk.HIGH),
    ("open('~/.ssh/id_rsa')", Risk.HIGH),
    ("import a_module_that_nobody_knows", Risk.HIGH),
    ("from . import sibling", Risk.HIGH),
    ("import os\nx = os", Risk.HIGH),
    ("getattr(x, name)", Risk.HIGH),
    ("globals()['x']", Risk.HIGH),
    ("x.__dict__", Risk.HIGH),
    ("from os import *", Risk.HIGH),
    ("import sys\nsys.modules['os']", Risk.HIGH),
    ("__import__('json')", Risk.HIGH),
    ("import importlib\nimportlib.import_module('json')", Risk.HIGH),
    ("breakpoint()", Risk.HIGH),
    ("def f(:", Risk.HIGH),
    ("x = 'unfinished", Risk.HIGH),
    ("print('a\0b')", Risk.HIGH),
    # starts programs, touches memory, climbs out
    ("import os\nos.system('id')", Risk.CRITICAL),
    ("from os import system as run\nrun('id')", Risk.CRITICAL),
    ("import os as o\no.popen('id')", Risk.CRITICAL),
    ("import os\ngetattr(os, 'sys' + 'tem')('id')", Risk.CRITICAL),
    ("import os\ngetattr(os, name)('id')", Risk.CRITICAL),
    ("import subprocess", Risk.CRITICAL),
    ("from subprocess import run", Risk.CRITICAL),
    ("import asyncio\nasyncio.create_subprocess_shell('id')", Risk.CRITICAL),
    ("import ctypes", Risk.CRITICAL),
    ("eval(text)", Risk.CRITICAL),
    ("exec('import os; os.system(1)')", Risk.CRITICAL),
    ("eval('eval(x)')", Risk.CRITICAL),
    ("__import__('o' + 's').system('id')", Risk.HIGH),
    ("__import__(name)", Risk.CRITICAL),
    ("().__class__.__bases__[0].__subclasses__()", Risk.CRITICAL),
    ("(lambda: 0).__globals__", Risk.CRITICAL),
    ("print.__self__", Risk.CRITICAL),
    ("__builtins__", Risk.CRITICAL),
    ("(x for x in ()).gi_frame.f_back", Risk.CRITICAL),
]

# Each would do harm, or reach what does, if a list of bad words were all that is asked.
NEVER_SAFE = [
    "import json\njson.codecs.open('f', 'w')",
    "import random\nrandom._os.system('id')",
    "import random as r\nx = r\nx._os",
    "import os.path as p\nm = p\nm.os.system('id')",
    "import collections\ncollections.abc._sys",
    "match x:\n    case object(__class__=c):\n        pass",
    "getattr(x, '__cl' 'ass__')",
    "setattr(x, f'__{\"class\"}__', y)",
    "'{0.__init__.__globals__}'.format(x)",
    "show = '{0.__class__}'.format\nshow(1)",
    "str.format('{0.__class__}', 1)",
    "# coding: utf-7\nprint('+AGE-')",
    "\n# vim: set fileencoding=rot13 :\n",
    "# harmless\rimport os",
    "class M(type):\n    def __prepare__(name, bases):\n        return {}",
    "class A:\n    __annotations__['x'] = 1",
    "from dataclasses import dataclass\nclass M(type):\n    def __new__(m, n, b, ns):\n"
    "        ns['__annotations__'] = {\"x=print('out')\": int}\n        return super().__new__(m, n, b, ns)\n"
    "@dataclass\nclass A(metaclass=M):\n    pass",
    "@eval\ndef f(): pass",
    "list(map(eval, ['1']))",
    "open = print\nopen('x')",
    "import math as print\nx = print",
    "\uff45\uff56\uff41\uff4c('1')",  # the parser makes plain letters of these
    "import operator\noperator.attrgetter('__class__')(1)",
    "import typing\ntyping.get_type_hints(x)",
    "import uuid\nuuid.uuid1()",
    "from functools import partial\npartial(getattr, x)",
    "def f():\n    global __builtins__\n",
    "import urllib.parse\nurllib.request.urlopen('x')",
    "getattr(*args)",
    "super().__getattribute__('x')",
    "class A:\n    def __reduce__(self):\n        return print, ()",
    "help()",
    "exec",
    "x = yield from y.cr_frame",
]


@pytest.mark.parametrize("code", SAFE)
def test_code_that_only_computes_is_safe(code: str) -> None:
    found = assess("python", code)

    assert found.risk is Risk.SAFE, [str(finding) for finding in found.findings]
    assert found.findings == ()


@pytest.mark.parametrize(("code", "risk"), RISKY)
def test_a_snippet_has_its_risk(code: str, risk: Risk) -> None:
    found = assess("python", code)

    assert found.risk is risk, [str(finding) for finding in found.findings]
    assert max(finding.risk for finding in found.findings) is risk


@pytest.mark.parametrize("code", NEVER_SAFE)
def test_a_trick_is_not_called_safe(code: str) -> None:
    assert assess("python", code).risk > Risk.SAFE


def test_a_finding_says_what_where_and_why() -> None:
    found = assess("python", "x = 'é'; import os\nif x:\n    os.system('id')")

    shown = [(finding.line, finding.column, finding.pattern) for finding in found.findings if finding.pattern[0] != "."]
    assert shown == [(1, 10, "import os"), (3, 5, "os.system")]
    assert all(finding.why for finding in found.findings)
    assert found.patterns[0] == "os.system"


def test_the_parser_warns_nobody_about_somebody_elses_code() -> None:
    assert assess("python", "print('\\d', 1 is 1)").risk is Risk.SAFE  # warnings are errors in this suite


@pytest.mark.parametrize(
    "code",
    ["-" * 5000 + "1", "1" + "+1" * 5000, "(" * 90 + ")" * 90 + ".a" * 300, "x" * 100_001, "if x:\n" * 1],
    ids=["unary", "sum", "attributes", "long", "unfinished"],
)
def test_what_is_too_deep_too_long_or_unfinished_is_at_least_high(code: str) -> None:
    assert assess("python", code).risk >= Risk.HIGH


def test_findings_are_bounded_and_the_worst_is_among_them() -> None:
    found = assess("python", "open('a', 'w')\n" * 5000 + "import ctypes\n")

    assert len(found.findings) < 600
    assert found.patterns[0] == "import ctypes"


def test_no_module_is_both_harmless_and_of_a_risk_that_its_import_hides() -> None:
    both = rows.HARMLESS.keys() & rows.MODULES.keys()

    assert {name for name in both if rows.MODULES[name].risk > Risk.MEDIUM} == set()


@pytest.mark.parametrize("table", [rows.MODULES, rows.MEMBERS, rows.BUILTINS, rows.ATTRIBUTES])
def test_every_row_has_its_reason(table: dict[str, rows.RiskRow]) -> None:
    assert [name for name, row in table.items() if not row.why] == []
