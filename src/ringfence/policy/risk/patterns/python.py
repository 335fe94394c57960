"""What is known about Python: modules, their members, built-ins, attributes and constructs, each with its reason.

A module is either in HARMLESS, with the members that are known to only compute, or in MODULES. A member that is in
neither HARMLESS nor MEMBERS is unknown: modules of the standard library hold each other (`json.codecs.open`).
"""

import builtins
from typing import Final

from ringfence.policy.risk.patterns.base import ANY, RiskRow, Table, spread, words
from ringfence.values.risk import Risk

SAFE, LOW, MEDIUM, HIGH, CRITICAL = Risk.SAFE, Risk.LOW, Risk.MEDIUM, Risk.HIGH, Risk.CRITICAL

# --- modules whose named members only compute -----------------------------------------------------------------------

HARMLESS: Final[dict[str, frozenset[str]]] = {
    "__future__": ANY,
    "math": ANY,
    "cmath": ANY,
    "itertools": ANY,
    "_operator": frozenset(),
    "abc": words("ABC ABCMeta abstractmethod abstractproperty"),
    "array": frozenset({"array"}),
    "base64": words(
        "b64encode b64decode urlsafe_b64encode urlsafe_b64decode b32encode b32decode b16encode b16decode "
        "a85encode a85decode b85encode b85decode standard_b64encode standard_b64decode"
    ),
    "binascii": ANY,
    "bisect": words("bisect bisect_left bisect_right insort insort_left insort_right"),
    "calendar": words("isleap leapdays monthrange month_name day_name month_abbr day_abbr monthcalendar"),
    "collections": words("OrderedDict Counter defaultdict deque namedtuple ChainMap abc"),
    "collections.abc": ANY,
    "copy": words("copy deepcopy"),
    "csv": words("reader writer DictReader DictWriter QUOTE_ALL QUOTE_MINIMAL QUOTE_NONE QUOTE_NONNUMERIC"),
    "datetime": words("date time datetime timedelta timezone tzinfo UTC MINYEAR MAXYEAR"),
    "decimal": words("Decimal getcontext localcontext Context ROUND_HALF_UP ROUND_HALF_EVEN ROUND_DOWN"),
    "difflib": words("SequenceMatcher get_close_matches ndiff unified_diff context_diff"),
    "enum": words("Enum IntEnum StrEnum Flag IntFlag auto unique"),
    "fractions": frozenset({"Fraction"}),
    "functools": words("reduce partial lru_cache cache cached_property wraps total_ordering cmp_to_key"),
    "hashlib": words("md5 sha1 sha224 sha256 sha384 sha512 blake2b blake2s sha3_256 sha3_512"),
    "heapq": words("heapify heappush heappop heappushpop heapreplace nlargest nsmallest merge"),
    "html": words("escape unescape"),
    "io": words("StringIO BytesIO"),
    "json": words("loads dumps JSONDecodeError"),
    "keyword": words("iskeyword kwlist issoftkeyword softkwlist"),
    "numbers": words("Number Complex Real Rational Integral"),
    # without attrgetter and methodcaller, which reach attributes by names that are only known at run time
    "operator": words("add sub mul truediv floordiv mod neg lt le eq ne ge gt and_ or_ xor itemgetter"),
    "pprint": words("pprint pformat pp"),
    "random": words(
        "random randint randrange choice choices shuffle sample uniform gauss normalvariate seed Random "
        "triangular betavariate expovariate getrandbits"
    ),
    "re": words(
        "compile match fullmatch search findall finditer sub subn split escape Pattern Match error "
        "IGNORECASE I MULTILINE M DOTALL S VERBOSE X ASCII A"
    ),
    "secrets": words("token_hex token_bytes token_urlsafe choice randbelow compare_digest"),
    "statistics": words(
        "mean fmean median median_low median_high mode multimode stdev pstdev variance pvariance quantiles "
        "geometric_mean harmonic_mean correlation covariance linear_regression"
    ),
    # without Formatter, which follows attributes that a format string names
    "string": words(
        "ascii_letters ascii_lowercase ascii_uppercase digits hexdigits octdigits punctuation whitespace printable "
        "capwords"
    ),
    "struct": words("pack unpack calcsize pack_into unpack_from iter_unpack Struct error"),
    "sys": words("exit maxsize version version_info byteorder float_info getsizeof stdout stderr platform"),
    "textwrap": words("wrap fill dedent indent shorten"),
    "time": words("time time_ns sleep monotonic perf_counter perf_counter_ns process_time strftime gmtime"),
    # without get_type_hints and ForwardRef, which evaluate text
    "typing": words(
        "Any Callable ClassVar Dict Final FrozenSet Generic Iterable Iterator List Literal Mapping NamedTuple NewType "
        "Optional Protocol Sequence Set Tuple Type TypeVar TypedDict Union cast overload"
    ),
    "unicodedata": ANY,
    "urllib.parse": words("quote unquote quote_plus unquote_plus urlencode urljoin urlparse urlsplit parse_qs"),
    "uuid": words("UUID uuid3 uuid4 uuid5"),  # uuid1 starts programs to learn the network address
    "zlib": words("compress decompress crc32 adler32"),
}

# --- the other modules: what importing them makes possible ----------------------------------------------------------

_FILES = "reads and writes files"
_NETWORK = "talks to the network"
_PROGRAMS = "starts programs"
_MEMORY = "reaches raw memory and native code"
_PICKLE = "loading its data runs code that the data names"
_RUNS = "runs code that is not seen here"
_INSIDE = "reaches into the interpreter"
_LATER = "runs code at another time or in another thread"

MODULES: Final[Table] = {
    # Members decide; the import alone opens the door.
    **spread(LOW, "the operating system: files, environment, programs", "os posix nt"),
    **spread(LOW, "names of files, and whether they exist", "os.path posixpath ntpath genericpath"),
    **spread(LOW, "paths of files, with methods that read and write them", "pathlib"),
    **spread(LOW, "reads files of the workspace", "fileinput linecache glob fnmatch filecmp configparser tomllib"),
    **spread(LOW, _LATER, "threading asyncio queue sched concurrent contextvars atexit selectors"),
    **spread(LOW, "looks at the machine and the person using it", "platform locale getpass pwd grp resource errno"),
    **spread(LOW, "parses or formats text", "argparse ast tokenize token xml html.parser email gettext string types"),
    **spread(LOW, "helpers of the language", "contextlib warnings weakref traceback timeit unittest zoneinfo cmd"),
    # `dataclass` runs code that it makes from the names of fields, and a metaclass can put any text there
    **spread(LOW, "makes code from the names of fields", "dataclasses"),
    **spread(MEDIUM, _FILES, "shutil tempfile zipfile tarfile gzip bz2 lzma sqlite3 dbm mmap logging codecs io csv"),
    **spread(MEDIUM, "changes how the process ends, waits or counts", "signal fcntl termios tty syslog"),
    **spread(MEDIUM, "measures or traces running code", "cProfile profile pstats tracemalloc trace faulthandler"),
    **spread(
        HIGH, _NETWORK, "socket ssl socketserver http urllib ftplib smtplib imaplib poplib telnetlib nntplib xmlrpc"
    ),
    **spread(HIGH, _NETWORK, "wsgiref asyncore asynchat webbrowser select"),
    **spread(HIGH, _PICKLE, "pickle _pickle cPickle shelve marshal copyreg pickletools"),
    **spread(
        HIGH, _RUNS, "importlib imp runpy pkgutil zipimport code codeop builtins __builtin__ pdb bdb doctest __main__"
    ),
    **spread(
        HIGH, _RUNS, "venv ensurepip pip setuptools distutils pkg_resources site sitecustomize py_compile compileall"
    ),
    **spread(HIGH, _INSIDE, "gc inspect dis opcode symtable sysconfig _thread _io _imp _frozen_importlib"),
    **spread(CRITICAL, _PROGRAMS, "subprocess _posixsubprocess multiprocessing pty popen2 commands"),
    **spread(CRITICAL, _MEMORY, "ctypes _ctypes cffi"),
    # Libraries that people use every day.
    **spread(
        LOW, "computes and formats; needs nothing from outside", "dateutil pytz tabulate attr attrs pydantic tqdm rich"
    ),
    **spread(LOW, "parses text", "bs4 lxml markdown docutils jsonschema html5lib regex"),
    **spread(
        MEDIUM, "reads and writes files, and can load pickles", "numpy pandas scipy sklearn polars pyarrow xarray"
    ),
    **spread(
        MEDIUM, _FILES, "matplotlib seaborn plotly PIL cv2 openpyxl xlrd docx imageio skimage networkx sympy nltk"
    ),
    **spread(MEDIUM, "its plain loader makes any object that the text names", "yaml ruamel"),
    **spread(HIGH, _PICKLE, "joblib torch tensorflow keras transformers jax"),
    **spread(
        HIGH, _NETWORK, "requests httpx aiohttp urllib3 httplib2 boto3 botocore google azure websockets websocket"
    ),
    **spread(
        HIGH, _NETWORK, "flask fastapi django starlette uvicorn tornado twisted openai anthropic selenium playwright"
    ),
    **spread(HIGH, _NETWORK, "psycopg psycopg2 pymysql MySQLdb pymongo redis sqlalchemy kafka pika dns scapy"),
    **spread(HIGH, "runs a template's or a test's own code", "jinja2 mako pytest nose"),
    **spread(HIGH, "sees and ends processes", "psutil"),
    **spread(CRITICAL, _PICKLE, "dill cloudpickle"),
    **spread(CRITICAL, _PROGRAMS, "pexpect sh plumbum invoke fabric paramiko docker kubernetes git"),
}

_OS_PROGRAM = RiskRow(CRITICAL, _PROGRAMS)
MEMBERS: Final[Table] = {
    "os.path.*": RiskRow(LOW, "names of files, and whether they exist"),
    "os.system": _OS_PROGRAM,
    "os.popen*": _OS_PROGRAM,
    "os.exec*": _OS_PROGRAM,
    "os.spawn*": _OS_PROGRAM,
    "os.posix_spawn*": _OS_PROGRAM,
    "os.startfile": _OS_PROGRAM,
    "os.fork*": RiskRow(HIGH, "makes processes"),
    **spread(HIGH, "ends processes", "os.kill os.killpg os.abort"),
    **spread(
        HIGH, "changes who the process is", "os.setuid os.setgid os.setresuid os.setresgid os.chroot os.initgroups"
    ),
    **spread(HIGH, "removes", "os.remove os.unlink os.rmdir os.removedirs shutil.rmtree shutil.move"),
    **spread(HIGH, "changes who may use a file", "os.chmod os.chown os.lchown os.fchmod os.fchown shutil.chown"),
    **spread(
        MEDIUM, "changes files", "os.rename os.replace os.mkdir os.makedirs os.link os.symlink os.truncate os.utime"
    ),
    **spread(
        MEDIUM, "opens a file, for writing perhaps", "os.open os.fdopen os.write os.read os.mkfifo os.mknod os.pipe"
    ),
    **spread(
        MEDIUM, "reads or changes the environment, where secrets live", "os.environ os.environb os.getenv os.putenv"
    ),
    **spread(MEDIUM, "copies files", "shutil.copy shutil.copy2 shutil.copyfile shutil.copytree shutil.make_archive"),
    **spread(
        LOW, "looks at files or at the machine", "os.listdir os.scandir os.walk os.stat os.getcwd os.access os.lstat"
    ),
    **spread(
        LOW, "looks at files or at the machine", "os.sep os.linesep os.name os.cpu_count os.getpid os.urandom os.uname"
    ),
    **spread(
        LOW, "looks at files or at the machine", "os.getuid os.getppid os.fspath os.PathLike os.curdir os.devnull"
    ),
    **spread(LOW, "changes where relative paths lead", "os.chdir os.fchdir"),
    "sys.argv": RiskRow(LOW, "what the caller passed"),
    "sys.stdin": RiskRow(LOW, "reads its input"),
    "sys.executable": RiskRow(LOW, "where the interpreter lies"),
    "sys.path": RiskRow(HIGH, "changes where modules come from"),
    "sys.modules": RiskRow(HIGH, "reaches every module that is loaded"),
    "sys.meta_path": RiskRow(HIGH, "changes how modules are loaded"),
    "sys.path_hooks": RiskRow(HIGH, "changes how modules are loaded"),
    "sys._getframe": RiskRow(CRITICAL, "reaches the frames of its callers"),
    "sys.settrace": RiskRow(HIGH, "runs at every line of other code"),
    "sys.setprofile": RiskRow(HIGH, "runs at every call of other code"),
    "sys.setrecursionlimit": RiskRow(LOW, "can overflow the interpreter's stack"),
    "json.load": RiskRow(LOW, "reads a file that is already open"),
    "json.dump": RiskRow(LOW, "writes a file that is already open"),
    "operator.attrgetter": RiskRow(HIGH, "reaches an attribute by a name that may be known only at run time"),
    "operator.methodcaller": RiskRow(HIGH, "calls a method by a name that may be known only at run time"),
    "typing.get_type_hints": RiskRow(HIGH, "evaluates text as code"),
    "typing.ForwardRef": RiskRow(HIGH, "evaluates text as code"),
    "string.Formatter": RiskRow(MEDIUM, "a format string can name attributes"),
    "string.Template": RiskRow(LOW, "fills in a text"),
    "uuid.uuid1": RiskRow(HIGH, "starts programs to learn the network address"),
    "uuid.getnode": RiskRow(HIGH, "starts programs to learn the network address"),
    "asyncio.create_subprocess_*": _OS_PROGRAM,
    "asyncio.subprocess*": _OS_PROGRAM,
    "asyncio.open_connection": RiskRow(HIGH, _NETWORK),
    "asyncio.start_server": RiskRow(HIGH, _NETWORK),
    "io.open*": RiskRow(MEDIUM, "opens a file, for writing perhaps"),
    "io.FileIO": RiskRow(MEDIUM, "opens a file, for writing perhaps"),
    "codecs.open": RiskRow(MEDIUM, "opens a file, for writing perhaps"),
    "pandas.read_pickle": RiskRow(HIGH, _PICKLE),
    "numpy.load": RiskRow(MEDIUM, "can load pickles, if it is told to"),
    "numpy.ctypeslib*": RiskRow(CRITICAL, _MEMORY),
    "yaml.load": RiskRow(HIGH, "its plain loader makes any object that the text names"),
    "yaml.unsafe_load": RiskRow(CRITICAL, _PICKLE),
    "types.CodeType": RiskRow(CRITICAL, "makes code from raw bytes"),
    "types.FunctionType": RiskRow(CRITICAL, "makes a function from a code object"),
    "logging.config*": RiskRow(HIGH, "its configuration names code to run"),
    "zipfile.*": RiskRow(MEDIUM, _FILES),
    "tarfile.*": RiskRow(MEDIUM, _FILES),
}

SELF_EXPLAINING: Final = frozenset({"os", "posix", "nt", "sys", *HARMLESS})
"""Modules whose members are listed: one that is not is unknown, hence HIGH. Elsewhere the module's own row speaks."""

# --- names without an import ------------------------------------------------------------------------------------------

HARMLESS_BUILTINS: Final = words(
    "abs aiter all anext any ascii bin bool bytearray bytes callable chr classmethod complex dict divmod enumerate "
    "filter float format frozenset hash hex id int isinstance issubclass iter len list map max memoryview min next "
    "object oct ord pow print property range repr reversed round set slice sorted staticmethod str sum super tuple "
    "type zip exit quit Ellipsis NotImplemented True False None __name__ __doc__ __debug__"
) | {name for name, thing in vars(builtins).items() if isinstance(thing, type) and issubclass(thing, BaseException)}

BUILTINS: Final[Table] = {
    "eval": RiskRow(HIGH, "evaluates text as code"),
    "exec": RiskRow(HIGH, "runs text as code"),
    "compile": RiskRow(HIGH, "makes code from text"),
    "__import__": RiskRow(HIGH, "imports a module by a name that may be known only at run time"),
    "open": RiskRow(MEDIUM, "opens a file, for writing perhaps"),
    "getattr": RiskRow(HIGH, "reaches an attribute by a name that may be known only at run time"),
    "setattr": RiskRow(HIGH, "changes an attribute by a name that may be known only at run time"),
    "delattr": RiskRow(HIGH, "removes an attribute by a name that may be known only at run time"),
    "hasattr": RiskRow(LOW, "looks for an attribute by a name that may be known only at run time"),
    "globals": RiskRow(HIGH, "reaches every name of the module"),
    "locals": RiskRow(HIGH, "reaches names as data"),
    "vars": RiskRow(HIGH, "reaches the attributes of anything as data"),
    "dir": RiskRow(LOW, "lists the attributes of anything"),
    "breakpoint": RiskRow(HIGH, "runs whatever debugger the environment names"),
    "help": RiskRow(MEDIUM, "may start a pager"),
    "input": RiskRow(LOW, "reads its input"),
    "copyright": RiskRow(LOW, "reads a file of the installation"),
    "credits": RiskRow(LOW, "reads a file of the installation"),
    "license": RiskRow(LOW, "reads a file of the installation"),
    "__file__": RiskRow(LOW, "where the code lies"),
    "__builtins__": RiskRow(CRITICAL, "reaches every built-in as data"),
    "__loader__": RiskRow(CRITICAL, "loads modules without an import"),
    "__spec__": RiskRow(CRITICAL, "loads modules without an import"),
    "__build_class__": RiskRow(HIGH, "how classes are made"),
}

UNKNOWN_BUILTIN: Final = RiskRow(HIGH, "a built-in that is not on the list of known ones")
UNKNOWN_DUNDER: Final = RiskRow(HIGH, "a name of the interpreter's own, not on the list of known ones")
UNKNOWN_MODULE: Final = RiskRow(HIGH, "a module that is not on the list of known ones: its code is not seen here")
UNKNOWN_MEMBER: Final = RiskRow(HIGH, "not on the list of what this module is known to offer")
UNKNOWN_CONSTRUCT: Final = RiskRow(HIGH, "a construct that is not on the list of known ones")
RELATIVE_IMPORT: Final = RiskRow(HIGH, "imports code that lies beside this one and is not seen here")
MODULE_AS_VALUE: Final = RiskRow(HIGH, "a module handed around as a value: what is done with it is not seen here")
STAR_IMPORT: Final = RiskRow(HIGH, "imports every name, so that which ones are used is not seen here")
CODING: Final = RiskRow(HIGH, "asks for another encoding, by which the text may mean something else")
DYNAMIC_CODE: Final = RiskRow(CRITICAL, "runs text that is put together at run time")
DYNAMIC_IMPORT: Final = RiskRow(CRITICAL, "imports a module whose name is put together at run time")
DYNAMIC_MEMBER: Final = RiskRow(CRITICAL, "picks from this module by a name that is put together at run time")
MAKES_CLASS: Final = RiskRow(MEDIUM, "makes a class from data")
OPENS_TO_READ: Final = RiskRow(LOW, "opens a file for reading")
OPENS_TO_WRITE: Final = RiskRow(MEDIUM, "opens a file for writing")
OPENS_OUTSIDE: Final = RiskRow(HIGH, "opens a file outside the workspace")
FORMAT: Final = RiskRow(LOW, "a format string that follows attributes, or that is put together at run time and may")
FORMAT_PRIVATE: Final = RiskRow(HIGH, "a format string that follows private attributes")
LONE_RETURN: Final = RiskRow(HIGH, "a carriage return alone: a line that a person does not see as one")
PRIVATE: Final = RiskRow(LOW, "uses what another object calls private")

# --- attributes of anything -------------------------------------------------------------------------------------------

HARMLESS_DUNDERS: Final = words("__name__ __doc__ __qualname__ __len__ __slots__ __match_args__ __all__")
"""Attributes that give plain text or numbers."""

OWN_METHODS: Final = words(
    "__init__ __new__ __repr__ __str__ __format__ __bytes__ __hash__ __bool__ __len__ __iter__ __next__ __reversed__ "
    "__contains__ __getitem__ __setitem__ __delitem__ __missing__ __call__ __enter__ __exit__ __aenter__ __aexit__ "
    "__aiter__ __anext__ __await__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __add__ __radd__ __iadd__ __sub__ "
    "__rsub__ __isub__ __mul__ __rmul__ __imul__ __matmul__ __truediv__ __rtruediv__ __floordiv__ __mod__ __pow__ "
    "__neg__ __pos__ __abs__ __invert__ __and__ __or__ __xor__ __lshift__ __rshift__ __int__ __float__ __complex__ "
    "__index__ __round__ __post_init__ __init_subclass__ __class_getitem__ __get__ __set__ __delete__ __set_name__ "
    "__copy__ __deepcopy__"
)
"""Methods that a class may define for itself, and reach in its parents through `super()`."""

_CLIMB = "a step of the climb from any object to the interpreter"
ATTRIBUTES: Final[Table] = {
    "__class__": RiskRow(MEDIUM, _CLIMB),
    "__dict__": RiskRow(HIGH, "attributes as data"),
    **spread(CRITICAL, "loads a library into the interpreter", "enable_load_extension load_extension LoadLibrary"),
    **spread(
        CRITICAL, _CLIMB, "__subclasses__ __globals__ __builtins__ __bases__ __base__ __mro__ __code__ __closure__"
    ),
    **spread(
        CRITICAL, _CLIMB, "__getattribute__ __self__ __func__ __wrapped__ __import__ __loader__ __spec__ __module__"
    ),
    **spread(CRITICAL, _CLIMB, "__reduce__ __reduce_ex__ __traceback__ __init_subclass__ mro __subclasshook__"),
    **spread(CRITICAL, _CLIMB, "gi_frame gi_code cr_frame cr_code ag_frame ag_code tb_frame tb_next f_back f_globals"),
    **spread(CRITICAL, _CLIMB, "f_locals f_builtins f_code func_globals func_code im_func im_self co_code co_consts"),
    **spread(MEDIUM, "changes files, if it is a path", "write_text write_bytes touch mkdir symlink_to hardlink_to"),
    **spread(HIGH, "removes or opens up files, if it is a path", "unlink rmdir rmtree chmod lchmod"),
    **spread(LOW, "reads files, if it is a path", "read_text read_bytes iterdir glob rglob"),
    **spread(
        MEDIUM,
        "writes a file, if it is a table or an array",
        "to_csv to_excel to_parquet to_json to_sql savefig tofile",
    ),
    **spread(HIGH, _PICKLE, "to_pickle read_pickle"),
    **spread(HIGH, "starts another program or connection, if it is an event loop", "subprocess_exec subprocess_shell"),
    **spread(
        HIGH, "starts a program, if it is a module", "system popen Popen check_output check_call execv execve spawnl"
    ),
    **spread(HIGH, "a module that another one holds", "os sys subprocess builtins importlib ctypes socket codecs"),
    "load_module": RiskRow(CRITICAL, "loads a module without an import"),
    "exec_module": RiskRow(CRITICAL, "loads a module without an import"),
}

# --- constructs -------------------------------------------------------------------------------------------------------

HARMLESS_NODES: Final = words(
    "Module Expr Expression Constant Name Load Store Del Assign AnnAssign AugAssign NamedExpr Pass Break Continue "
    "Return If IfExp For AsyncFor While With AsyncWith withitem Try TryStar ExceptHandler Raise Assert Delete "
    "FunctionDef AsyncFunctionDef Lambda ClassDef arguments arg keyword Call Attribute Subscript Slice Starred BinOp "
    "UnaryOp BoolOp Compare Add Sub Mult Div FloorDiv Mod Pow MatMult LShift RShift BitOr BitXor BitAnd Invert Not "
    "UAdd USub And Or Eq NotEq Lt LtE Gt GtE Is IsNot In NotIn List Tuple Set Dict ListComp SetComp DictComp "
    "GeneratorExp comprehension JoinedStr FormattedValue Yield YieldFrom Await Import ImportFrom alias Global "
    "Nonlocal Match match_case MatchValue MatchSingleton MatchSequence MatchMapping MatchClass MatchStar MatchAs "
    "MatchOr"
)
