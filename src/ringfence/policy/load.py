"""Reads a policy: YAML text in, `Policy` out, or an error that names the place and what would be right there.

Nothing of a file that has an error counts: a policy that is half understood may lack just the rule that mattered. But
it is read to its end, so that all of its errors are named at once.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ringfence.dataclass import dataclass, field
from ringfence.policy.document import Listing, Node, Scalar, Section, kind_of, read_document
from ringfence.policy.faults import Faults
from ringfence.policy.model import ROLE_TOOLS, Block, Name, Policy, Role, Setting, canonical
from ringfence.policy.reading import ExpansionContext, read_value, texts
from ringfence.policy.roles import check_roles
from ringfence.policy.schema import BY_NAME, SETTINGS, TOOLS, Key, Tighter, Type, sections

_SECTIONS: Final = frozenset(sections())
_ROOT: Final = ("policies", "network")
_POLICIES: Final = ("default", "tools", "agent_roles", "may_widen")
_ROLE_ONLY: Final = ("inherits", "tools")
_TYPO: Final = 0.8  # how alike two names are, of 1, to be taken for a slip of the keyboard


def load_policy(text: str, source: str, around: ExpansionContext | None = None) -> Policy:
    """Read a policy file's text.

    Raises:
        InvalidConfig: anything in it is not as it has to be; names source, line and column of each error.
    """
    faults = Faults(source)
    reader = _Reader(source, around or ExpansionContext(), faults)
    policy = reader.policy(read_document(text, source, faults))
    check_roles(policy, faults)
    faults.raise_all()
    return policy


@dataclass(slots=True)
class _Raw:
    """The settings of a block before lists that belong together are put together."""

    found: dict[str, list[Setting]] = field(default_factory=dict)
    switched_off: set[str] = field(default_factory=set)


class _Reader:
    def __init__(self, source: str, around: ExpansionContext, faults: Faults) -> None:
        self._source = source
        self._around = around
        self._faults = faults
        self._named_tools: list[Name] = []

    def policy(self, root: Node) -> Policy:
        top = self._members(root, "the file", _ROOT)
        policies = self._members(top.get("policies"), "policies", _POLICIES)
        default = policies.get("default")
        network = top.get("network")
        raw = _Raw()
        if default is not None:
            self._collect(self._section(default, "policies.default"), "", raw)
        if network is not None:
            if any(name.startswith("network.") for name in raw.found):
                fault = network.mark.fault(
                    "`network` is given at the top and in `policies.default`", "keep one of the two"
                )
                self._faults.add(fault)
            self._collect(self._section(network, "network"), "network.", raw)
        tools = {
            name.text: self._tool(name, node) for name, node in self._named(policies.get("tools"), "policies.tools")
        }
        roles = {
            name.text: self._role(name, node)
            for name, node in self._named(policies.get("agent_roles"), "policies.agent_roles")
        }
        self._check_tools(tools)
        return Policy(
            source=self._source,
            default=_joined(raw),
            tools=tools,
            roles=roles,
            may_widen=self._may_widen(policies.get("may_widen")),
        )

    def _tool(self, name: Name, node: Node) -> Block:
        raw = _Raw()
        self._collect(self._section(node, f"policies.tools.{name.text}"), "", raw)
        if name.text not in TOOLS:
            near = difflib.get_close_matches(name.text, TOOLS, n=1, cutoff=_TYPO)
            if near or "risk_level" not in raw.found:
                hint = f"did you mean {near[0]!r}?" if near else "a tool of your own needs a `risk_level`"
                self._faults.add(name.mark.fault(f"unknown tool {name.text!r}", hint))
        return _joined(raw)

    def _role(self, name: Name, node: Node) -> Role:
        if name.text == "default":
            hint = "settings for every role stand in policies.default"
            self._faults.add(name.mark.fault("a role cannot be called `default`", hint))
        section = self._section(node, f"policies.agent_roles.{name.text}")
        inherits: tuple[Name, ...] = ()
        own: list[tuple[Scalar, Node]] = []
        tools: Setting | None = None
        for key, value in section.entries:
            with self._faults.kept():
                if key.text == "inherits":
                    parents = value if isinstance(value, Listing) else Listing((value,), value.mark)
                    inherits = texts(parents, "inherits", "a role's name", self._faults)
                elif key.text == "tools":
                    names = texts(value, "tools", "a list of tools", self._faults)
                    self._named_tools += names
                    tools = Setting(ROLE_TOOLS, (names,), key.mark, "tools")
                else:
                    own.append((key, value))
        raw = _Raw()
        self._collect(Section(tuple(own), section.mark), "", raw, also=_ROLE_ONLY)
        block = dict(_joined(raw))
        if tools is not None:
            block[ROLE_TOOLS.name] = tools
        return Role(name.text, name.mark, inherits, block)

    def _check_tools(self, tools: Mapping[str, Block]) -> None:
        known = (*TOOLS, *tools)
        for name in self._named_tools:
            if name.text not in known:
                self._faults.add(name.mark.fault(f"unknown tool {name.text!r}", nearest(name.text, known)))

    def _may_widen(self, node: Node | None) -> frozenset[str]:
        if node is None:
            return frozenset()
        found: set[str] = set()
        with self._faults.kept():
            for name in texts(node, "may_widen", "a list of settings", self._faults):
                if name.text in BY_NAME:
                    found.add(canonical(name.text))
                    continue
                hint = nearest(name.text, BY_NAME)
                self._faults.add(name.mark.fault(f"unknown setting {name.text!r} in may_widen", hint))
        return frozenset(found)

    def _collect(self, section: Section, prefix: str, raw: _Raw, also: Iterable[str] = ()) -> None:
        """Read the settings of a section and of those in it."""
        for key, node in section.entries:
            name = prefix + key.text
            if name in _SECTIONS:
                self._collect(self._section(node, name), f"{name}.", raw)
            elif name in BY_NAME and "." not in key.text:
                with self._faults.kept():
                    self._take(BY_NAME[name], key, node, raw)
            else:
                self._unknown(key, _here(prefix, also), prefix)

    def _take(self, key: Key, written: Scalar, node: Node, raw: _Raw) -> None:
        value = read_value(key, node, self._around, self._faults)
        if key.type is Type.TOOLS:
            self._named_tools += value
        if key.name.endswith(".enabled"):
            if not value:
                raw.switched_off.add(key.name.removesuffix("enabled"))
            else:
                raw.found.setdefault(key.name, []).append(Setting(key, True, written.mark, key.name))
            return
        kept = canonical(key.name)
        before = raw.found.get(kept)
        if before and BY_NAME[kept].tighter is Tighter.LESS:
            raise written.mark.fault(f"{key.name} says the same as {before[0].written}", "keep one of the two")
        raw.found.setdefault(kept, []).append(Setting(BY_NAME[kept], value, written.mark, key.name))

    def _members(self, node: Node | None, where: str, valid: tuple[str, ...]) -> dict[str, Node]:
        if node is None:
            return {}
        found: dict[str, Node] = {}
        for key, value in self._section(node, where).entries:
            if key.text in valid:
                found[key.text] = value
            else:
                self._unknown(key, valid, "" if where == "the file" else f"{where}.")
        return found

    def _named(self, node: Node | None, where: str) -> Iterator[tuple[Name, Node]]:
        if node is None:
            return
        for key, value in self._section(node, where).entries:
            if not key.text.strip() or key.is_nothing:
                self._faults.add(key.mark.fault(f"an empty name in {where}", "give it a name"))
            else:
                yield Name(key.text, key.mark), value

    def _section(self, node: Node, where: str) -> Section:
        if isinstance(node, Scalar) and node.is_nothing:
            return Section((), node.mark)  # a key whose every line is commented out
        if not isinstance(node, Section):
            what = f"{where} has to be a section, not {kind_of(node)}"
            self._faults.add(node.mark.fault(what, "indent its keys below it"))
            return Section((), node.mark)
        return node

    def _unknown(self, key: Scalar, valid: Iterable[str], prefix: str) -> None:
        if key.text == "<<":
            fault = key.mark.fault("merge keys are not accepted", "write the settings out, or let a role inherit")
        else:
            fault = key.mark.fault(f"unknown key {prefix + key.text!r}", nearest(key.text, tuple(valid)))
        self._faults.add(fault)


def nearest(written: str, valid: Iterable[str]) -> str:
    """The hint that names the valid word most like the one written; all of them, if none is like it."""
    words = tuple(valid)
    close = difflib.get_close_matches(written, words, n=1) or difflib.get_close_matches(
        written, [word.rpartition(".")[2] for word in words], n=1
    )
    if close:
        return f"did you mean {close[0]!r}?"
    elsewhere = [name for name in (*BY_NAME, *_POLICIES, *_ROOT) if name.rpartition(".")[2] == written]
    if elsewhere:
        return f"did you mean {elsewhere[0]!r}?"
    return f"valid here: {', '.join(words)}"


def _here(prefix: str, also: Iterable[str]) -> tuple[str, ...]:
    heads = (key.name[len(prefix) :].partition(".")[0] for key in SETTINGS if key.name.startswith(prefix))
    return tuple(dict.fromkeys((*heads, *also)))


def _joined(raw: _Raw) -> Block:
    """One setting for each name: the lists of `allowed_domains` and `network.allowlist` of one block are one list."""
    block: dict[str, Setting] = {}
    for name, settings in raw.found.items():
        kept = [setting for setting in settings if not any(map(setting.written.startswith, raw.switched_off))]
        if name.endswith(".enabled") or not kept:
            continue
        first = kept[0]
        value = first.value
        if first.key.tighter is Tighter.EVERY_LIST:
            value = (tuple(row for setting in kept for row in setting.value),)
        elif first.key.tighter is Tighter.ANY_LIST or first.key.tighter is Tighter.BELOW:
            value = tuple(row for setting in kept for row in setting.value)
        block[name] = Setting(first.key, value, first.mark, first.written)
    switched_on = raw.found.get("network.allowlist.enabled")
    if switched_on and "allowed_domains" not in block and "network.allowlist." not in raw.switched_off:
        # A list that is switched on and empty allows nothing.
        block["allowed_domains"] = Setting(
            BY_NAME["allowed_domains"], ((),), switched_on[0].mark, "network.allowlist.enabled"
        )
    return block
