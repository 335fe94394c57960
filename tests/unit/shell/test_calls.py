"""Code of other languages that runs programs: what its literals say, and what is put together."""

import time
from dataclasses import replace

import pytest

from ringfence.shell import CheckContext, analyse, answer, validate
from ringfence.shell.calls import folded, runs_unseen
from ringfence.shell.foreign import read_code
from ringfence.values.facts import CheckAnswer, Origin, Unknown

pytestmark = pytest.mark.req("C3")

UNSEEN = [
    ("python", "from os import system as s; s(a)"),
    ("python", "import os; f=os.system; f(a)"),
    ("python", "import subprocess; f = subprocess.run\nf(a)"),
    ("awk", 'BEGIN{c="cu"; system(c "rl x")}'),
    ("awk", "{print $1 | c}"),
    ("awk", "BEGIN{c | getline x}"),
    ("awk", '{print $1 | "/bin/sh -e"}'),
    ("perl", "system$_"),
    ("perl", "system @c"),
    ("perl", 'exec join("","cu","rl")'),
    ("perl", "`$x`"),
    ("perl", "eval $x"),
    ("perl", 'exec("cu".$x)'),
    ("perl", 'exec "cu".$x'),
    ("python", "import os; os.system(x)"),
    ("python", "import subprocess as s; s.run(c)"),
    ("python", 'import subprocess as s; s.run(["git",c])'),
    ("python", 'from subprocess import run; run(f"{a} x")'),
    ("python", 'import subprocess as s; s.run(f"{a} x", shell=True)'),
    ("python", 'import subprocess as s; s.run("{} x".format(a), shell=True)'),
    ("python", 'import subprocess as s; s.run("cu%s x" % a, shell=True)'),
    ("python", 'exec(chr(1)+"x")'),
    ("python", 'getattr(os,"sys"+"tem")("ls")'),
    ("python", 'subprocess.run(["cu"]+["rl"])'),
    ("python", 'subprocess.run("a b".split())'),
    ("python", "subprocess.run(*a)"),
    ("node", 'require("child_process").execSync("cu"+x)'),
    ("node", 'const{execSync:e}=require("child_process");require(m)["exec"+"Sync"](y)'),
    ("node", 'require("child_process").spawn(a,["x"])'),
    ("node", "require('child_process').execSync(`${x} y`)"),
    ("ruby", "system(x)"),
    ("ruby", "system x"),
    ("ruby", 'exec "cu"+x'),
    ("ruby", "`#{x}`"),
    ("php", "system($x);"),
    ("php", "echo `$x`;"),
    ("lua", "os.execute(x)"),
    ("lua", 'os.execute("cu"..x)'),
]
SEEN = [
    ("awk", 'BEGIN{system("cu" "rl x")}'),
    ("python", "import numpy as np, os; os.path.join(a)"),
    ("python", "from subprocess import run; run(['ls'])"),
    ("awk", "/a|b/{print $1}"),
    ("awk", "$1 ~ /a|b/ || $2 {print $1 || $2}"),
    ("awk", '{print $1 | "sort -u"}'),
    ("awk", '{"date" | getline d; print d}'),
    ("awk", '{gsub(/a|b/,""); print gsub(/x|y/,"")}'),
    ("perl", 'print "exec time: $x\n"'),
    ("perl", 'system("ls")'),
    ("perl", 'system "ls", "-l"'),
    ("perl", 'system("ls") or die'),
    ("perl", "eval { foo() }; print $h->{system}"),
    ("perl", "s/exec/x/g; print"),
    ("perl", "$exec = 1; print $exec"),
    ("python", "import platform; print(platform.system())"),
    ("python", "import asyncio, subprocess; asyncio.run(main())"),
    ("python", 'import subprocess; subprocess.run(["git","log"], check=True)'),
    ("python", 'import subprocess; subprocess.run(\n  ["git",\n "log"],\n check=True,\n)'),
    ("python", 'import os; os.system("ls")'),
    ("python", "app.run(port=1)"),
    ("python", 'import subprocess,sys; subprocess.run([sys.executable, "-m", "pytest"])'),
    ("python", "df.eval(x); model.eval()"),
    ("python", "m = re.compile(x)"),
    ("python", "ast.literal_eval(x)"),
    ("python", 'import subprocess as s; print(s.check_output("git log", shell=True, text=True))'),
    ("node", "console.log(/x/.exec(s))"),
    ("node", 'require("child_process").execSync("ls",{stdio:"inherit"})'),
    ("node", 'require("child_process").spawnSync("ls",["-l"],{})'),
    ("node", "require('child_process').execSync(`ls`)"),
    ("node", 'const f=require("./x.json");console.log(f.v)'),
    ("ruby", 'system("ls")'),
    ("ruby", 'system "ls", "-l"'),
    ("ruby", "puts `ls`"),
    ("ruby", "spec = 1; puts spec"),
    ("php", "curl_exec($ch); $db->exec($q);"),
    ("php", 'system("ls");'),
    ("lua", 'os.execute("ls")'),
    ("lua", "print(os.time())"),
]


@pytest.mark.parametrize(("language", "code"), UNSEEN)
def test_a_call_whose_argument_is_put_together_is_unseen(language: str, code: str) -> None:
    assert runs_unseen(language, folded(language, code))


@pytest.mark.parametrize(("language", "code"), SEEN)
def test_a_call_with_literals_is_seen_and_other_code_runs_nothing(language: str, code: str) -> None:
    assert not runs_unseen(language, folded(language, code))


@pytest.mark.parametrize(
    "line",
    [
        """awk 'BEGIN{system("cu" "rl x")}'""",
        """perl -e 'exec "cu"."rl","x"'""",
        """python3 -c '__import__("subprocess").run(["cu"+"rl","x"])'""",
        """python3 - <<< 'import os; os.system("cur"+"l x")'""",
        """node -e 'require("child_process").execSync("cu"+"rl x")'""",
        """node -e 'require("child_process").execSync(`curl x`)'""",
        """ruby -e 'system("cu" + "rl x")'""",
        """php -r 'system("cu"."rl x");'""",
        """lua -e 'os.execute("cu".."rl x")'""",
        "make -f /dev/null -E 'x:=$(shell curl x)'",
        "make --eval='x != curl x'",
        """python3 -m timeit -n1 -s 'import os' 'os.system("curl x")'""",
        """python3 -mtimeit -s 'import os; os.system("curl x")' pass""",
        """python3 -m pdb -c 'import os;os.system("curl x")' a.py""",
        """python3 -m code <<< 'import os;os.system("curl x")'""",
        """python3 -m asyncio <<< 'import os;os.system("curl x")'""",
        """a=(c u r l); IFS=; "${a[*]}" x""",
        "cpp -wrapper curl,x /dev/null",
        "script -q /dev/null <<< 'curl x'",
    ],
)
def test_the_program_is_found(line: str) -> None:
    assert "curl" in [program.name for program in analyse(line).programs]


@pytest.mark.parametrize(
    "line",
    [
        """awk 'BEGIN{print ENVIRON["Z"] | "sh"}'""",
        """perl -e '$_="phey x";y/a-z/n-za-m/;system$_'""",
        """python3 -c 'import os, sys; os.system(sys.stdin.read())'""",
    ],
)
def test_what_code_puts_together_is_opaque_and_warned_of_by_no_check(line: str) -> None:
    facts = analyse(line)
    built = [part for part in facts.opaque if part.origin is Origin.BUILT]

    assert [part.unknown for part in built] == [Unknown.CODE]
    without = replace(facts, opaque=tuple(part for part in facts.opaque if part not in built))
    assert validate(facts, CheckContext()) == validate(without, CheckContext())


def test_a_statement_for_a_database_is_no_line_for_a_shell() -> None:
    for language in ("python3", "ruby", "php"):
        assert read_code(language, "cursor.execute('select 1')").shell == ()
    assert read_code("lua", "os.execute('curl x')").shell == ("curl x",)


def test_one_open_after_the_other_is_read_in_bounded_time() -> None:
    begin = time.process_time()
    read_code("perl", "open (" * 20_000)
    assert time.process_time() - begin < 5


@pytest.mark.parametrize(
    "line",
    ['IFS=,; a=(x y); echo "${a[*]}"', "script -c 'ls' out < names.txt", "python3 -m pytest -q", "make -j4 test"],
)
def test_ordinary_neighbours_stay_ordinary(line: str) -> None:
    assert answer(validate(analyse(line), CheckContext())) is not CheckAnswer.BLOCK
    assert not [part for part in analyse(line).opaque if part.unknown is Unknown.CODE]


@pytest.mark.parametrize("language", ["awk", "perl", "python", "node", "ruby", "php", "lua"])
@pytest.mark.parametrize(
    "piece",
    [
        "system(",
        "print x ",
        "`$",
        "exec ",
        "'a'+",
        '"a"',
        "['a',",
        "subprocess.run(['a',",
        "qx ",
        "open(,",
        "\\'",
        "'",
        " ",
    ],
)
def test_hostile_code_is_read_in_bounded_time(language: str, piece: str) -> None:
    for before in ("", "subprocess.run([", "exec "):
        code = before + piece * (20_000 // len(piece))
        begin = time.process_time()
        runs_unseen(language, folded(language, code))
        assert time.process_time() - begin < 2
