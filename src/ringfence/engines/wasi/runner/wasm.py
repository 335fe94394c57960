"""The few calls of wasmtime's C interface that a runner needs.

The package `wasmtime` itself takes five times as long to import as a runner takes to start. Its library does not, so
that it is called directly. The interface changes with the major version: `VERSION` is compared before anything is run,
and the sizes below are those of that version.

What this does not protect against: a fault in wasmtime. The box around the runner does.
"""

import ctypes
from ctypes import byref, c_bool, c_char_p, c_int32, c_size_t, c_uint8, c_uint64, c_void_p

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERSION = "50."
STACK_BYTES = 2 * 1024 * 1024  # CPython needs more than the usual half a megabyte for 150 nested parentheses
HOST_STACK_BYTES = STACK_BYTES + 1024 * 1024  # less than the stack of the code inside ends the process
TABLE_ELEMENTS = 100_000
INSTANCES = TABLES = 100

_FEATURES = (
    # What a tool has no use for, and what would widen what it can ask of the machine.
    ("wasm_threads", False),
    ("shared_memory", False),
    ("wasm_memory64", False),
    ("wasm_multi_memory", False),
    ("wasm_exceptions", True),
    ("epoch_interruption", True),
)
CONFIGURATION = f"{_FEATURES} {STACK_BYTES}"
"""What code has to be compiled for, besides the version."""


class Bytes(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("data", c_void_p)]

    def take(self, library: "Any") -> bytes:
        text = ctypes.string_at(self.data, self.size) if self.size else b""
        library.wasm_byte_vec_delete(byref(self))
        return text


class _Value(ctypes.Structure):
    """Of a core module, and of a component: a kind and 24 bytes."""

    _fields_ = [("kind", c_uint8), ("of", c_uint64 * 3)]


class _Extern(ctypes.Structure):
    _fields_ = [("kind", c_uint8), ("of", c_uint64 * 3)]


_Handle = c_uint64 * 4
_I32, _MEMORY = 0, 3
_S32, _STRING = 5, 12


class Exit(Exception):
    """The module has asked to end, with this code."""

    def __init__(self, code: int) -> None:
        self.code = code


class Trap(Exception):
    """The module was stopped: by a fault of its own, or because its time was over."""


class Refused(Exception):
    """wasmtime does not take what it was given."""


def load(path: str) -> "Any":
    """The library, with what its functions give back: ctypes takes an int of 32 bits for everything else."""
    library = ctypes.CDLL(path)
    for name in _POINTERS:
        getattr(library, name).restype = c_void_p
    for name in _TRUTHS:
        getattr(library, name).restype = c_bool
    library.wasmtime_memory_data_size.restype = c_size_t
    return library


_POINTERS = [
    "wasm_config_new",
    "wasm_engine_new_with_config",
    "wasmtime_store_new",
    "wasmtime_store_context",
    "wasi_config_new",
    "wasmtime_linker_new",
    "wasmtime_linker_define_wasi",
    "wasmtime_module_new",
    "wasmtime_module_serialize",
    "wasmtime_module_deserialize_file",
    "wasmtime_linker_instantiate",
    "wasmtime_func_call",
    "wasmtime_context_set_wasi",
    "wasmtime_memory_data",
    "wasmtime_component_new",
    "wasmtime_component_serialize",
    "wasmtime_component_deserialize_file",
    "wasmtime_component_linker_new",
    "wasmtime_component_linker_add_wasip2",
    "wasmtime_component_linker_instantiate",
    "wasmtime_component_instance_get_export_index",
    "wasmtime_component_func_call",
    "wasmtime_component_func_post_return",
]
_TRUTHS = [
    "wasi_config_set_argv",
    "wasi_config_set_env",
    "wasi_config_preopen_dir",
    "wasmtime_error_exit_status",
    "wasmtime_instance_export_get",
    "wasmtime_component_instance_get_func",
]


class Engine:
    """wasmtime, configured as every module here is compiled and run."""

    def __init__(self, library: "Any") -> None:
        self.library = library
        config = c_void_p(library.wasm_config_new())
        for name, is_on in _FEATURES:
            getattr(library, f"wasmtime_config_{name}_set")(config, c_bool(is_on))
        library.wasmtime_config_max_wasm_stack_set(config, c_size_t(STACK_BYTES))
        library.wasmtime_config_async_stack_size_set(config, c_size_t(HOST_STACK_BYTES))
        self.pointer = c_void_p(library.wasm_engine_new_with_config(config))

    def compile(self, code: bytes, *, is_component: bool) -> bytes:
        """Machine code of a module or component.

        Raises:
            Refused: it is not valid.
        """
        kind = "component" if is_component else "module"
        made, out = c_void_p(), Bytes()
        self.check(getattr(self.library, f"wasmtime_{kind}_new")(self.pointer, code, c_size_t(len(code)), byref(made)))
        self.check(getattr(self.library, f"wasmtime_{kind}_serialize")(made, byref(out)))
        return out.take(self.library)

    def load(self, path: str, *, is_component: bool) -> c_void_p:
        """Compiled code from a file, which is mapped and not read.

        Raises:
            Refused: it is of another version or configuration, or not whole.
        """
        kind = "component" if is_component else "module"
        made = c_void_p()
        load = getattr(self.library, f"wasmtime_{kind}_deserialize_file")
        self.check(load(self.pointer, path.encode(), byref(made)))
        return made

    def stop(self) -> None:
        """End what runs, at its next step; from another thread."""
        self.library.wasmtime_engine_increment_epoch(self.pointer)

    def check(self, error: "int | None") -> None:
        """Raises:
        Refused: there is an error that the code inside did not make.
        """
        if error:
            out = Bytes()
            self.library.wasmtime_error_message(c_void_p(error), byref(out))
            raise Refused(out.take(self.library).decode("utf-8", "replace"))

    def check_call(self, error: "int | None", trap: c_void_p) -> None:
        """Raises:
        Exit, Trap: how a call ended that did not return.
        """
        out = Bytes()
        if error:
            status = c_int32()
            if self.library.wasmtime_error_exit_status(c_void_p(error), byref(status)):
                raise Exit(status.value & 0xFF)
            self.library.wasmtime_error_message(c_void_p(error), byref(out))
        elif trap.value:
            self.library.wasm_trap_message(trap, byref(out))
        else:
            return
        raise Trap(reason(out.take(self.library).decode("utf-8", "replace")))


def reason(text: str) -> str:
    """What a person wants to know of wasmtime's words: the last cause, without the stack of unnamed functions."""
    causes = [line.strip() for line in text.rstrip("\0").splitlines() if "wasm trap:" in line or "failed to" in line]
    return (causes or text.rstrip("\0").splitlines() or ["unknown"])[-1].partition("wasm trap: ")[2] or text[:200]


class Store:
    """The world of one instance: what it may use, and what it sees.

    Args:
        directories: (path of the box, path inside, whether it can be written)
        memory_bytes: of its one linear memory; what it asks beyond that fails, and it goes on.
    """

    def __init__(
        self,
        engine: Engine,
        argv: "list[bytes]",
        env: "list[tuple[bytes, bytes]]",
        directories: "list[tuple[bytes, bytes, bool]]",
        memory_bytes: int,
        table_elements: int = TABLE_ELEMENTS,
        *,
        is_component: bool = False,
    ) -> None:
        library = self.library = engine.library
        self.engine = engine
        self.pointer = c_void_p(library.wasmtime_store_new(engine.pointer, None, None))
        # A component is made of several core modules, each with its memory; the limit is for each.
        limits = (memory_bytes, table_elements, INSTANCES, TABLES, 10 if is_component else 1)
        library.wasmtime_store_limiter(self.pointer, *map(ctypes.c_int64, limits))
        self.context = c_void_p(library.wasmtime_store_context(self.pointer))
        # The epoch is counted up only to end what runs: the first tick does.
        library.wasmtime_context_set_epoch_deadline(self.context, c_uint64(1))
        config = c_void_p(library.wasi_config_new())
        if not library.wasi_config_set_argv(config, c_size_t(len(argv)), _texts(argv)):
            raise Refused("the arguments are not UTF-8")
        names, values = [name for name, _ in env], [value for _, value in env]
        if not library.wasi_config_set_env(config, c_size_t(len(env)), _texts(names), _texts(values)):
            raise Refused("the variables are not UTF-8")
        for stream in ("stdin", "stdout", "stderr"):
            getattr(library, f"wasi_config_inherit_{stream}")(config)
        for here, inside, is_writable in directories:
            if not library.wasi_config_preopen_dir(config, here, inside, c_bool(is_writable)):
                raise Refused(f"{inside.decode()} cannot be opened")
        # Neither inherit_network nor allow_ip_name_lookup, ever: without them there are no sockets and no names.
        engine.check(library.wasmtime_context_set_wasi(self.context, config))


class ModuleInstance:
    """A core module of WASI preview 1."""

    def __init__(self, store: Store, module: c_void_p) -> None:
        self._store, library = store, store.library
        linker = c_void_p(library.wasmtime_linker_new(store.engine.pointer))
        store.engine.check(library.wasmtime_linker_define_wasi(linker))
        self._instance, trap = (c_uint64 * 2)(), c_void_p()
        error = library.wasmtime_linker_instantiate(linker, store.context, module, byref(self._instance), byref(trap))
        try:
            store.engine.check_call(error, trap)
        except Trap as fault:
            raise Refused(str(fault)) from None

    def call(self, name: bytes, *numbers: int, results: int = 0) -> int:
        """Call an export that takes and gives numbers of 32 bits.

        Raises:
            Exit, Trap: it did not return.
        """
        library, context = self._store.library, self._store.context
        function = self._export(name)
        given, back, trap = (_Value * max(len(numbers), 1))(), (_Value * 1)(), c_void_p()
        for value, number in zip(given, numbers, strict=False):
            value.kind, value.of[0] = _I32, number & 0xFFFFFFFF
        error = library.wasmtime_func_call(
            context, byref(function.of), given, c_size_t(len(numbers)), back, c_size_t(results), byref(trap)
        )
        self._store.engine.check_call(error, trap)
        return int(back[0].of[0] & 0xFFFFFFFF)

    def put(self, text: bytes) -> int:
        """Text in memory that the module's own `malloc` gives; where it lies."""
        library, context = self._store.library, self._store.context
        at = self.call(b"malloc", len(text) + 1, results=1)
        memory = self._export(b"memory")
        size = library.wasmtime_memory_data_size(context, byref(memory.of))
        if not at or at + len(text) + 1 > size:
            raise Trap("its memory is full")
        base = library.wasmtime_memory_data(context, byref(memory.of))
        ctypes.memmove(base + at, text + b"\0", len(text) + 1)
        return at

    def _export(self, name: bytes) -> _Extern:
        found = _Extern()
        if not self._store.library.wasmtime_instance_export_get(
            self._store.context, byref(self._instance), name, c_size_t(len(name)), byref(found)
        ):
            raise Refused(f"there is no export {name.decode()}")
        return found


class ComponentInstance:
    """A component of WASI preview 2."""

    def __init__(self, store: Store, component: c_void_p) -> None:
        self._store, library = store, store.library
        linker = c_void_p(library.wasmtime_component_linker_new(store.engine.pointer))
        store.engine.check(library.wasmtime_component_linker_add_wasip2(linker))
        self._instance = (c_uint64 * 2)()
        store.engine.check(
            library.wasmtime_component_linker_instantiate(linker, store.context, component, byref(self._instance))
        )

    def call(self, name: bytes, *texts: bytes) -> "int | bytes":
        """Call an export that takes texts, and gives a number or a text.

        Raises:
            Exit, Trap: it did not return; no further call is possible.
        """
        library, context = self._store.library, self._store.context
        index = library.wasmtime_component_instance_get_export_index(
            byref(self._instance), context, None, name, c_size_t(len(name))
        )
        function = _Handle()
        if not index or not library.wasmtime_component_instance_get_func(
            byref(self._instance), context, c_void_p(index), byref(function)
        ):
            raise Refused(f"there is no export {name.decode()}")
        given, back = (_Value * max(len(texts), 1))(), (_Value * 1)()
        for value, text in zip(given, texts, strict=False):
            value.kind, vector = _STRING, Bytes()
            library.wasm_byte_vec_new(byref(vector), c_size_t(len(text)), text)
            value.of[0], value.of[1] = vector.size, vector.data or 0
        error = library.wasmtime_component_func_call(
            byref(function), context, given, c_size_t(len(texts)), back, c_size_t(1)
        )
        self._store.engine.check_call(error, c_void_p())
        if back[0].kind == _STRING:
            return Bytes(back[0].of[0], back[0].of[1]).take(library)
        return int(c_int32(back[0].of[0] & 0xFFFFFFFF).value)


def _texts(texts: "list[bytes]") -> "ctypes.Array[c_char_p]":
    return (c_char_p * max(len(texts), 1))(*texts)
