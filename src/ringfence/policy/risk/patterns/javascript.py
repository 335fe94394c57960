"""What is known about JavaScript and TypeScript: modules, globals, properties and constructs, each with its reason.

The names are those of Node, because that is what runs here; Deno's and Bun's own globals are on the list as well.
"""

from typing import Final

from ringfence.policy.risk.patterns.base import RiskRow, Table, spread, words
from ringfence.values.risk import Risk

SAFE, LOW, MEDIUM, HIGH, CRITICAL = Risk.SAFE, Risk.LOW, Risk.MEDIUM, Risk.HIGH, Risk.CRITICAL

_NETWORK = "talks to the network"
_PROGRAMS = "starts programs"
_FILES = "reads and writes files"
_RUNS = "runs code that is not seen here"

# --- modules ----------------------------------------------------------------------------------------------------------

HARMLESS_MODULES: Final = words("path path/posix path/win32 util assert assert/strict events url querystring punycode")
"""Modules that compute, and hold no others. `node:` before a name changes nothing."""

MODULES: Final[Table] = {
    **spread(LOW, "text, bytes and streams of the process itself", "buffer string_decoder stream readline"),
    **spread(LOW, "clocks and timers", "timers timers/promises perf_hooks async_hooks diagnostics_channel constants"),
    **spread(LOW, "looks at the machine", "os tty sys"),
    **spread(LOW, "computes on bytes", "crypto zlib"),
    **spread(LOW, "runs tests that are in this code", "test node:test"),
    **spread(MEDIUM, _FILES, "fs fs/promises fs-extra graceful-fs sqlite"),
    **spread(HIGH, _NETWORK, "net http https http2 dgram dns dns/promises tls"),
    **spread(HIGH, _RUNS, "module repl inspector inspector/promises trace_events domain wasi worker_threads"),
    **spread(CRITICAL, _PROGRAMS, "child_process cluster"),
    **spread(CRITICAL, "runs text as code, or reads the interpreter's memory", "vm v8 process"),
    # Packages that people use every day.
    **spread(
        LOW, "computes; needs nothing from outside", "lodash underscore ramda uuid dayjs moment date-fns zod immer"
    ),
    **spread(LOW, "formats and parses text", "chalk yargs commander minimist semver typescript tslib yaml csv-parse"),
    **spread(MEDIUM, _FILES, "rimraf mkdirp glob del tar archiver adm-zip"),
    **spread(
        HIGH, _NETWORK, "axios node-fetch got request undici ws socket.io socket.io-client express koa fastify ssh2"
    ),
    **spread(HIGH, _NETWORK, "puppeteer playwright aws-sdk openai pg mysql mysql2 mongodb mongoose redis ioredis"),
    **spread(CRITICAL, _PROGRAMS, "execa shelljs cross-spawn zx node-pty"),
    **spread(CRITICAL, "claims to be a wall around code that it runs, and has been escaped", "vm2 isolated-vm"),
    **spread(CRITICAL, "reaches native code", "ffi-napi koffi bindings node-gyp-build"),
}
MEMBERS: Final[Table] = {
    **{f"fs.{name}*": RiskRow(HIGH, "removes files") for name in ("rm", "unlink")},
    **{f"fs.promises.{name}*": RiskRow(HIGH, "removes files") for name in ("rm", "unlink")},
    **{f"fs/promises.{name}*": RiskRow(HIGH, "removes files") for name in ("rm", "unlink")},
    **{f"fs.{name}*": RiskRow(HIGH, "changes who may use a file") for name in ("chmod", "chown", "lchmod", "lchown")},
    "crypto.webcrypto": RiskRow(LOW, "computes on bytes"),
    "lodash.template": RiskRow(HIGH, "runs text as code"),
    "underscore.template": RiskRow(HIGH, "runs text as code"),
}
AS_GLOBALS: Final = words(
    "child_process cluster dgram dns fs http http2 https inspector net repl tls v8 vm wasi worker_threads"
)
"""Modules that `node -e` offers as plain names, without a `require`."""

# --- names ------------------------------------------------------------------------------------------------------------

GLOBALS: Final[Table] = {
    "eval": RiskRow(HIGH, "runs text as code"),
    "Function": RiskRow(CRITICAL, "makes code from text"),
    **spread(HIGH, "every global, as data", "globalThis global window self root GLOBAL"),
    **spread(HIGH, "a way to modules, handed around as a value", "require module createRequire importScripts"),
    **spread(HIGH, "the process, handed around as a value", "process"),
    **spread(HIGH, _NETWORK, "fetch XMLHttpRequest WebSocket EventSource Request Response Headers FormData navigator"),
    **spread(HIGH, _RUNS, "Worker SharedWorker ServiceWorker Bun Deno WebAssembly BroadcastChannel MessageChannel"),
    **spread(HIGH, "reaches properties by names that may be known only at run time", "Reflect"),
    **spread(MEDIUM, "stands between an object and its users", "Proxy"),
    **spread(MEDIUM, "the arguments of a function; of the outermost one, `require` itself", "arguments"),
    **spread(MEDIUM, "keeps data beyond the run, or reaches a page", "localStorage sessionStorage indexedDB document"),
    **spread(LOW, "runs code at another time", "setTimeout setInterval setImmediate queueMicrotask"),
    **spread(LOW, "where the code lies", "__filename __dirname"),
    **spread(LOW, "memory that is shared, or seen as bytes", "SharedArrayBuffer Atomics Buffer Blob File"),
    **spread(LOW, "asks a person", "prompt alert confirm"),
    **spread(LOW, "computes on bytes", "crypto"),
}
PROCESS: Final[Table] = {
    **spread(SAFE, "", "exit exitCode hrtime nextTick uptime memoryUsage version platform arch stdout stderr pid"),
    **spread(LOW, "what the caller passed, and from where", "argv cwd title stdin on once versions cpuUsage execPath"),
    **spread(MEDIUM, "the environment, where secrets live", "env"),
    **spread(
        HIGH, "ends processes, or changes who this one is", "kill abort setuid setgid seteuid setegid chdir umask"
    ),
    **spread(CRITICAL, "reaches the interpreter itself", "binding _linkedBinding dlopen mainModule getBuiltinModule"),
    **spread(CRITICAL, "reaches the interpreter itself", "_load reallyExit _debugProcess report moduleLoadList"),
}
HARMLESS_OBJECT: Final = words("keys values entries assign freeze isFrozen seal fromEntries is hasOwn groupBy")
"""Members of `Object` that cannot reach what a name does not say."""

UNKNOWN_MODULE: Final = RiskRow(HIGH, "a module that is not on the list of known ones: its code is not seen here")
UNKNOWN_PROCESS: Final = RiskRow(HIGH, "not on the list of what `process` is known to offer")
UNKNOWN_OBJECT: Final = RiskRow(HIGH, "a member of `Object` that can reach what its text does not name")
UNKNOWN_CONSTRUCT: Final = RiskRow(HIGH, "a construct that is not on the list of known ones")
LOCAL_MODULE: Final = RiskRow(HIGH, "imports code that lies beside this one and is not seen here")
DYNAMIC_IMPORT: Final = RiskRow(CRITICAL, "imports a module whose name is put together at run time")
DYNAMIC_CODE: Final = RiskRow(CRITICAL, "runs text that is put together at run time")
DYNAMIC_MEMBER: Final = RiskRow(LOW, "reaches a property by a name that is known only at run time")
DYNAMIC_CALL: Final = RiskRow(MEDIUM, "calls a method by a name that is known only at run time")
ESCAPED_NAME: Final = RiskRow(HIGH, "a name written in escapes, so that it is not what it looks like")
LOOSE_THIS: Final = RiskRow(LOW, "`this` outside a class may be every global")
PRIVATE: Final = RiskRow(LOW, "uses what another object calls private")

# --- properties of anything -------------------------------------------------------------------------------------------

PROPERTIES: Final[Table] = {
    "constructor": RiskRow(CRITICAL, "a step of the climb from any object to making code from text"),
    **spread(CRITICAL, "reaches the interpreter itself", "binding _linkedBinding dlopen mainModule getBuiltinModule"),
    **spread(CRITICAL, _PROGRAMS, "execSync spawnSync execFileSync execFile spawn child_process"),
    **spread(HIGH, "a step up the chain of prototypes", "__proto__ getPrototypeOf setPrototypeOf"),
    **spread(
        HIGH, "reaches properties as data", "getOwnPropertyDescriptor getOwnPropertyDescriptors getOwnPropertyNames"
    ),
    **spread(
        HIGH, "changes how a property behaves", "__defineGetter__ __defineSetter__ __lookupGetter__ defineProperty"
    ),
    **spread(HIGH, "reaches the caller", "caller callee prepareStackTrace getFunction getThis"),
    **spread(HIGH, "a dangerous global, reached as a property", "eval Function require globalThis process global"),
    **spread(LOW, "changes what every object of a kind can do", "prototype"),
}

# --- constructs -------------------------------------------------------------------------------------------------------

CONSTRUCTS: Final[Table] = {
    "with_statement": RiskRow(HIGH, "names mean whatever an object says"),
    "html_comment": RiskRow(HIGH, "a comment for some readers and an error for others"),
    "debugger_statement": RiskRow(LOW, "stops for a debugger"),
    "meta_property": RiskRow(LOW, "asks where the code lies, or how it was called"),
    "computed_property_name": DYNAMIC_MEMBER,
    **spread(LOW, "markup, turned into calls", "jsx_attribute jsx_closing_element jsx_element jsx_expression"),
    **spread(LOW, "markup, turned into calls", "jsx_opening_element jsx_self_closing_element jsx_text"),
}
HARMLESS_NODES: Final = words(
    "arguments array array_pattern arrow_function assignment_expression assignment_pattern await_expression "
    "augmented_assignment_expression binary_expression break_statement call_expression catch_clause class class_body "
    "class_declaration class_heritage class_static_block comment continue_statement do_statement else_clause "
    "empty_statement escape_sequence export_clause export_specifier export_statement expression_statement false "
    "field_definition finally_clause for_in_statement for_statement formal_parameters function_declaration "
    "function_expression generator_function generator_function_declaration hash_bang_line identifier if_statement "
    "import import_clause import_specifier import_statement labeled_statement lexical_declaration member_expression "
    "method_definition named_imports namespace_export namespace_import new_expression null number object "
    "object_assignment_pattern object_pattern optional_chain pair pair_pattern parenthesized_expression "
    "private_property_identifier program property_identifier regex regex_flags regex_pattern rest_pattern "
    "return_statement sequence_expression shorthand_property_identifier shorthand_property_identifier_pattern "
    "spread_element statement_block statement_identifier string string_fragment subscript_expression super switch_body "
    "switch_case switch_default switch_statement template_string template_substitution ternary_expression this "
    "throw_statement true try_statement unary_expression undefined update_expression variable_declaration "
    "variable_declarator while_statement yield_expression "
    # TypeScript: types leave nothing behind at run time, the rest only names and numbers
    "abstract_class_declaration abstract_method_signature accessibility_modifier ambient_declaration array_type "
    "as_expression asserts asserts_annotation call_signature conditional_type constraint construct_signature "
    "constructor_type default_type enum_assignment enum_body enum_declaration existential_type extends_clause "
    "extends_type_clause function_signature function_type generic_type implements_clause import_require_clause "
    "index_signature index_type_query infer_type instantiation_expression interface_body interface_declaration "
    "intersection_type literal_type lookup_type mapped_type_clause method_signature nested_identifier "
    "nested_type_identifier non_null_expression object_type omitting_type_annotation opting_type_annotation "
    "optional_parameter optional_type override_modifier parenthesized_type predefined_type property_signature "
    "public_field_definition readonly_type required_parameter rest_type satisfies_expression template_literal_type "
    "template_type this_type tuple_type type_alias_declaration type_annotation type_arguments type_assertion "
    "type_identifier type_parameter type_parameters type_predicate type_predicate_annotation type_query union_type"
)
