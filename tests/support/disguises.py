"""Ways to run a program without writing its name where a reader looks for it: wrappers, indirections, quotings.

`tests/corpus/disguises.jsonl` holds carriers of a command and spellings of a name, as templates: `@C@` is a command of
two words, `@N@` the name, `@P@` the name with its directory, `@B@` the directory; the others are parts and codings of
the name. Which of them truly run the program on a machine is found out by running them.
"""

import base64
import json
from pathlib import Path
from random import Random

CORPUS = Path(__file__).parents[1] / "corpus" / "disguises.jsonl"


def ways(name: str, directory: str) -> list[str]:
    """Every carrier with the plain name, every spelling by itself, and a sample of both together."""
    rows = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]
    carriers = [row["text"] for row in rows if row["kind"] == "carrier"]
    spellings = [row["text"] for row in rows if row["kind"] == "name"]
    random = Random(13)
    found = [_fill(carrier, "@N@", name, directory) for carrier in carriers]
    found += [_fill("@C@", spelling, name, directory) for spelling in spellings]
    words = [carrier for carrier in carriers if "@C@" in carrier and "'" not in carrier and '"@C@' not in carrier]
    for spelling in spellings:
        found += [_fill(carrier, spelling, name, directory) for carrier in random.sample(words, 6)]
    quoted = [carrier for carrier in carriers if "'@C@'" in carrier and carrier.count("'") == 2]
    for outer in quoted:
        inner = random.choice([one for one in words if "\n" not in one and "'" not in one])
        found.append(_fill(outer.replace("@C@", inner), "@N@", name, directory))
    return list(dict.fromkeys(found))


def _fill(carrier: str, spelling: str, name: str, directory: str) -> str:
    text = carrier.replace("@C@", spelling + " x")
    plain = f"{name} x"
    for mark, value in {
        "@P@": f"{directory}/{name}",
        "@B@": directory,
        "@D@": directory.rpartition("/")[2],
        "@N@": name,
        "@1@": name[:2],
        "@2@": name[2:],
        "@H@": name[0],
        "@T@": name[1:],
        "@L@": name[-1],
        "@R@": name[::-1],
        "@U@": name.upper(),
        "@X@": f"{ord(name[0]):02x}",
        "@O@": f"{ord(name[0]):03o}",
        "@S@": base64.b64encode(plain.encode()).decode(),
        "@Y@": plain.encode().hex(),
        "@E@": "".join(f"\\x{ord(char):02x}" for char in plain),
        "@W@": plain[::-1],
    }.items():
        text = text.replace(mark, value)
    return text
